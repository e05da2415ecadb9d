"""What the broker's state takes in memory: one constant for each kind of thing, counted as things come and go.

A message of one byte takes some 220 bytes: the object, its number, its place in a dictionary and three lists, its
times. So the limit of memory is compared with these figures, not with the bytes of bodies. They were measured as the
growth of a process that holds hundreds of thousands of each kind (CPython 3.11, 64 bits), and are rounded up a little:
dictionaries are between a third and two thirds full, and the allocator keeps some pages. The test that fills a process
with each kind (`tests/integration/test_memory_accounting.py`) fails if they are far from the truth.

What is counted is a function of what is held, so a restart counts the same, and nothing of it is written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from lavant.core.errors import StorageFull

MESSAGE = 256
"""Beside its body and attributes: the object 112, its number 32, the dictionary 30 to 60, arrivals, line and numbers
25, the head of the body 40; and the time it was sent, where no other message has the same."""
HIDDEN = 64
"""In flight or delayed: the lease 32, the time it ends, and an entry by that time."""
GROUP = 64
"""Of an in-order queue, beside its name: an entry of a dictionary and of a heap, or an object while it is in flight."""
NAME = 48
"""A name for de-duplication, beside the text."""
NAME_IN_GROUP = 64
"""The same with a group, beside both texts."""
NAMES_WINDOW = 176
"""All names of one millisecond: a list, a pair, a time."""
SHARED_BODY = 200
"""A body that is in several queues and held once, beside the body: an entry that counts them."""
QUEUE = 3600
"""Beside its name and tags: three double-ended queues of 624 bytes each, two dictionaries, settings, totals, entries in
three directories."""
TAG = 120

JOB = 500
"""Under way, beside its name, input and tasks: the object, a timer, entries by number and name."""
TASK = 150
ATTEMPT = 192
"""With the name of its worker."""
RESULT = 200
"""Beside its body and attributes."""
JOB_ENDED = 380
"""Beside its name and view."""
JOB_TYPE = 4096
JOB_TYPE_BYTE = 12
"""For each byte of a definition in MessagePack: its tasks and arrows as objects, and tables over them."""

SUBSCRIPTION = 250
"""Beside its texts: the state, and entries by name, in order, and by queue."""
MATCHED = 100
MATCHED_BYTE = 23
"""For each subscription and each byte of its filter: what the local engine's index takes."""
MATCHED_TEST_BYTE = 4
"""For each byte of an encrypted filter: once in the state, and in the index while that is built anew."""
ADVERTISEMENT = 200
KEY = 260
"""An idempotency key, beside its text: fingerprint, answer, times."""
KEY_ENTRY = 16
"""Each publication of its answer, beside the text of its id."""
KEYS_NAMESPACE = 300
"""A namespace that has idempotency keys."""
LANE = 300

_TEXT = 56
_WIDE = 4
"""Bytes of a character, if one of the text is beyond ASCII: as many as Python may need."""


def text_bytes(text: str) -> int:
    """What a text takes; one that is empty takes nothing.

    >>> text_bytes(""), text_bytes("orders"), text_bytes("größe")
    (0, 62, 76)
    """
    if not text:
        return 0
    return _TEXT + (len(text) if text.isascii() else _WIDE * len(text))


def texts_bytes(texts: Iterable[str]) -> int:
    return sum(map(text_bytes, texts))


def memory_full(held: int, size_bytes: int, memory_max: int) -> StorageFull:
    return StorageFull(
        f"messages, queues, jobs and subscriptions take {held} bytes of the server's memory, {size_bytes} more would "
        f"be over the limit of {memory_max}; try again when some were acknowledged or deleted, or start the server "
        "with a larger --memory-max"
    )
