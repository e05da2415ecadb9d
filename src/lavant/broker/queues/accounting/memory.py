"""Memory accounting: one constant for each kind of object, added and subtracted as objects come and go.

A message of one byte takes some 220 bytes: the object, its number, entries in a dictionary and three lists, its times.
The memory limit is therefore compared with these figures, not with the size of bodies. They were measured as the growth
of a process that holds hundreds of thousands of each kind (CPython 3.11, 64 bits) and rounded up a little: dictionaries
are between one and two thirds full, and the allocator keeps some pages. `tests/integration/test_memory_accounting.py`
fills a process with each kind and fails if a figure is far off.

The count is a function of the state, so it is the same after a restart and is never stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from lavant.core.errors import StorageFull

MESSAGE = 256
"""Without body and attributes: the object 112, its number 32, the dictionary 30 to 60, arrivals, order and numbers 25,
the header of the body 40; and the send time, unless another message has the same.
"""
HIDDEN = 64
"""In flight or delayed: the lease 32, its end, and an entry by that time."""
GROUP = 64
"""A group of an in-order queue, without its name: an entry of a dictionary and of a heap, or an object while in flight.
"""
NAME = 48
"""A de-duplication name, without its text."""
NAME_IN_GROUP = 64
"""The same with a group, without both texts."""
NAMES_WINDOW = 176
"""All names of one millisecond: a list, a pair, a time."""
SHARED_BODY = 200
"""A body held once for several queues, without the body: an entry with a reference count."""
QUEUE = 3600
"""Without its name and tags: three deques of 624 bytes each, two dictionaries, settings, totals, entries in three
directories.
"""
TAG = 120

JOB = 500
"""A running job, without its name, input and tasks: the object, a timer, entries by number and name."""
TASK = 150
ATTEMPT = 192
"""Includes the name of its worker."""
RESULT = 200
"""Without body and attributes."""
JOB_ENDED = 380
"""Without its name and view."""
JOB_TYPE = 4096
JOB_TYPE_BYTE = 12
"""For each byte of a definition in MessagePack: its tasks and arrows as objects, and tables over them."""

SUBSCRIPTION = 250
"""Without its texts: the state, and entries by name, in order, and by queue."""
MATCHED = 100
MATCHED_BYTE = 28
"""For each subscription and each byte of its filter: memory in the local engine's index."""
MATCHED_TEST_BYTE = 4
"""For each byte of an encrypted filter: once in the state, and in the index while that is rebuilt."""
ADVERTISEMENT = 200
KEY = 260
"""An idempotency key, without its text: fingerprint, answer, times."""
KEY_ENTRY = 16
"""Each publication of its answer, without the text of its id."""
KEYS_NAMESPACE = 300
"""A namespace that has idempotency keys."""
LOG_OFFSET = 300

_TEXT = 56
_WIDE = 4
"""Bytes per character of a text with characters beyond ASCII: the most that Python may need."""


def text_bytes(text: str) -> int:
    """Memory of a text; an empty one takes nothing.

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
        f"messages, queues, jobs and subscriptions take {held} bytes of the server's memory, {size_bytes} more "
        f"would exceed the limit of {memory_max}; try again when some were acknowledged or deleted, or start the "
        "server with a larger --memory-max"
    )
