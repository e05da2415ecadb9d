"""One message of a queue."""

from __future__ import annotations

import msgspec

GONE = -1


class Message(msgspec.Struct, array_like=True, gc=False):
    """Small, because there are millions: no dictionary, and only bytes, text and numbers, so no reference cycles.

    Two fields give its state:

        visible_ms    lease
        0             any       visible: it can be received
        > 0           0         delayed until then; it was never received
        > 0           > 0       in flight until then
        GONE          any       no longer in the queue; stale entries may remain
    """

    number: int
    body: bytes
    attributes: bytes
    sent_ms: int
    entered_ms: int
    """When it entered its current queue, by a send or a move; retention counts from here."""
    visible_ms: int
    lease: int
    """The latest, kept after it ends to tell expired receipts from superseded ones."""
    receive_count: int
    """In its current queue."""
    first_received_ms: int
    group: str
    deduplication: str
    origin: str | None
    """The queue whose dead letter it is."""
    reason: str = ""
    """The last reason for a failed attempt that a consumer gave."""
    attempts: int = 0
    """Receives in the queue whose dead letter it is."""


def state_of(message: Message) -> str:
    """Its state as text.

    >>> state_of(Message(1, b"", b"", 0, 0, 30_000, 7, 1, 0, "", "", None))
    'in flight'
    """
    if message.visible_ms == 0:
        return "visible"
    return "in flight" if message.lease else "delayed"


def moved(message: Message, *, origin: str | None, now_ms: int) -> Message:
    """The message as it enters another queue: it keeps its number, and a dead letter says why it is one."""
    return Message(
        message.number,
        message.body,
        message.attributes,
        message.sent_ms,
        now_ms,
        0,
        message.lease,
        0,
        0,
        message.group,
        message.deduplication,
        origin,
        "" if origin is None else message.reason,
        0 if origin is None else message.receive_count,
    )
