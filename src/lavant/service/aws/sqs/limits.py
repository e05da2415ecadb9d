"""The limits of the SQS protocol, as its documentation states them."""

from __future__ import annotations

BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 1 << 20
"""Body and attributes together, for one message and for all of a batch."""
ENTRY_ID_CHARACTERS_MAX = 80

RECEIVE_COUNT_MAX = 10
WAIT_S_MAX = 20
VISIBILITY_S_MAX = 43_200
DELAY_S_MAX = 900
RETENTION_S_MIN, RETENTION_S_MAX = 60, 1_209_600
QUEUE_MESSAGE_BYTES_MIN = 1024

ATTRIBUTES_MAX = 10
ATTRIBUTE_NAME_CHARACTERS_MAX = 256
ATTRIBUTE_TYPE_CHARACTERS_MAX = 256
NUMBER_DIGITS_MAX = 38
NUMBER_EXPONENT_MIN, NUMBER_EXPONENT_MAX = -128, 126
IDENTIFIER_CHARACTERS_MAX = 128
"""Of a message group or a deduplication id."""

RECEIVES_MIN, RECEIVES_MAX = 1, 1000
"""Of a message before it goes to the dead-letter queue."""
REDRIVE_SOURCES_MAX = 10
"""In a `byQueue` policy."""
KEY_REUSE_S_MIN, KEY_REUSE_S_MAX = 60, 86_400
LABEL_CHARACTERS_MAX = 8192
"""Of an attribute that is only kept and given back, such as `Policy`."""

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
"""Of a presigned URL: a week."""
CLOCK_SKEW_S_MAX = 900
