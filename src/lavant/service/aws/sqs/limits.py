"""The limits of the SQS protocol, as its documentation states them. `queue_attributes` has those of attributes."""

from __future__ import annotations

from lavant.broker.protocol.queue_config import DELAY_MS_MAX, SECOND_MS, VISIBILITY_MS_MAX, WAIT_MS_MAX

BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 20
"""Body and attributes together, for one message and for all of a batch."""
ENTRY_ID_CHARACTERS_MAX = 80

RECEIVE_COUNT_MAX = 10
WAIT_S_MAX = WAIT_MS_MAX // SECOND_MS
VISIBILITY_S_MAX = VISIBILITY_MS_MAX // SECOND_MS
DELAY_S_MAX = DELAY_MS_MAX // SECOND_MS

ATTRIBUTES_MAX = 10
ATTRIBUTE_NAME_CHARACTERS_MAX = 256
ATTRIBUTE_TYPE_CHARACTERS_MAX = 256
NUMBER_DIGITS_MAX = 38
NUMBER_EXPONENT_MIN, NUMBER_EXPONENT_MAX = -128, 126
IDENTIFIER_CHARACTERS_MAX = 128
"""Of a message group or a deduplication id."""

REDRIVE_SOURCES_MAX = 10
"""In a `byQueue` policy."""
KEY_REUSE_S_MIN, KEY_REUSE_S_MAX = 60, 86_400
LABEL_CHARACTERS_MAX = 8192
"""Of an attribute that is only kept and returned, such as `Policy`."""

TAGS_MAX = 50
TAG_KEY_CHARACTERS_MAX = 128
TAG_VALUE_CHARACTERS_MAX = 256

LIST_COUNT_MAX = 1000
MOVES_LISTED_MAX = 10
MOVE_RATE_PER_S_MAX = 500

FORM_FIELDS_MAX = 2000
"""Of a query request: ten entries with ten attributes each have fewer."""
FORM_INDEX_MAX = 10_000
EXPIRES_S_MAX = 604_800
"""Of a presigned URL: one week."""
CLOCK_SKEW_S_MAX = 900
