"""One message of a queue."""

from __future__ import annotations

import msgspec

GONE = -1


class Message(msgspec.Struct, array_like=True, gc=False):
    """Slim, because there are millions: no dictionary, and only bytes, text and numbers, so no cycles to look for.

    Its fields say where it stands:

        visible_ms    lease
        0             any       visible: it can be received
        > 0           0         delayed until then; it was never received
        > 0           > 0       in flight until then
        GONE          any       no longer in the queue, which may not have noticed everywhere yet
    """

    number: int
    body: bytes
    attributes: bytes
    sent_ms: int
    entered_ms: int
    """When it came into the queue where it is: when it was sent, or moved there. Its retention counts from then."""
    visible_ms: int
    lease: int
    """The latest; it is kept when it has run out, to tell late receipts from superseded ones."""
    receive_count: int
    """In the queue where it is."""
    first_received_ms: int
    group: str
    deduplication: str
    origin: str | None
    """The queue whose dead letter it is."""


def state_of(message: Message) -> str:
    """In words.

    >>> state_of(Message(1, b"", b"", 0, 0, 30_000, 7, 1, 0, "", "", None))
    'in flight'
    """
    if message.visible_ms == 0:
        return "visible"
    return "in flight" if message.lease else "delayed"


def moved(message: Message, *, origin: str | None, now_ms: int) -> Message:
    """The same message for another queue: it keeps its number, and starts afresh in everything else."""
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
    )
