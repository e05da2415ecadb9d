"""The configuration of a queue as it is sent and stored, and the bounds of queues and messages."""

from __future__ import annotations

from typing import Literal

import msgspec

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS

VISIBILITY_MS_MAX = DAY_MS // 2
DELAY_MS_MAX = 15 * MINUTE_MS
RETENTION_MS_MIN, RETENTION_MS_MAX = MINUTE_MS, 14 * DAY_MS
WAIT_MS_MAX = 20 * SECOND_MS
MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX = 1024, 1 << 20
BATCH_ENTRIES_MAX = 1000
BATCH_BYTES_MAX = 16 << 20
RECEIVES_MAX = 1000
DEDUPLICATION_MS = 5 * MINUTE_MS
NAME_CHARACTERS_MAX = 80
NAMESPACE_END = "/"
"""Separates the namespace from the name of a queue."""
DEPTH_MAX = 100_000_000
TAGS_MAX, TAG_KEY_CHARACTERS_MAX, TAG_VALUE_CHARACTERS_MAX = 50, 128, 256
LABELS_MAX, LABEL_CHARACTERS_MAX = 50, 64 << 10
"""Of all labels of a queue together."""
IDENTIFIER_CHARACTERS_MAX = 128
"""Of a group name or a deduplication name."""
REASON_CHARACTERS_MAX = 500
"""Of the reason for a failed attempt."""


def namespace_of(queue: str) -> str:
    """Returns the namespace in the full name of a queue; empty if it has none.

    >>> namespace_of("acme/orders"), namespace_of("orders")
    ('acme', '')
    """
    return queue.rpartition(NAMESPACE_END)[0]


class QueueConfig(msgspec.Struct, frozen=True, array_like=True):
    """The attributes of a queue, with the defaults of a new one; `queue_attributes` documents them.

    The order of the fields is a wire and journal format: append new ones at the end.
    """

    order: Literal["out-of-order", "in-order"] = "out-of-order"
    visibility_ms: int = 30 * SECOND_MS
    delay_ms: int = 0
    retention_ms: int = 4 * DAY_MS
    wait_ms: int = 0
    message_bytes_max: int = MESSAGE_BYTES_MAX
    depth_max: int = 10_000_000
    in_flight_max: int = 120_000
    dead_letters: str | None = None
    receives_max: int | None = None
    deduplicate_by_content: bool = False
    deduplicate_within_group: bool = False
    labels: dict[str, str] = {}
