"""Receive: lease the next messages; those received too often become dead letters instead."""

from __future__ import annotations

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX
from lavant.broker.protocol.queues import Delivery, PeekedMessage, Receipt
from lavant.broker.queues.message import Message, moved, state_of
from lavant.broker.queues.queue import QueueState, size_of
from lavant.core.errors import TooManyInFlight

DEAD_LETTERS_MAX = 1000
"""Per receive, which may then return nothing although more messages are visible."""


def receive(
    queue: QueueState, count: int, visibility_ms: int, now_ms: int, dead_letters: QueueState | None
) -> tuple[list[Delivery], int]:
    """Return the deliveries and the number of messages moved to the dead-letter queue, which must have the same order.

    Delivers at most `count`, which `room_for` bounds. If the dead-letter queue is missing or full, messages are
    delivered once more, never lost.
    """
    bytes_left = BATCH_BYTES_MAX
    leased: list[Message] = []
    dead_lettered = 0
    while len(leased) < count and bytes_left > 0 and dead_lettered < DEAD_LETTERS_MAX:
        taken = queue.order.take(count - len(leased), bytes_left)
        kept = taken if dead_letters is None else _dead_letter(queue, taken, dead_letters, now_ms)
        queue.lease(kept, now_ms + visibility_ms, now_ms)
        leased += kept
        if len(kept) == len(taken):
            break
        dead_lettered += len(taken) - len(kept)
        bytes_left -= sum(map(size_of, kept))
    deliveries = [
        Delivery(
            Receipt(message.number, message.lease),
            message.body,
            message.attributes,
            message.sent_ms,
            message.first_received_ms,
            message.receive_count,
            message.group,
            message.deduplication,
            message.origin,
            message.reason,
            message.attempts,
        )
        for message in leased
    ]
    if visibility_ms == 0:
        for message in leased:
            queue.give_back(message)
    return deliveries, dead_lettered


def room_for(queue: QueueState) -> int:
    """How many more messages may be in flight; raises if there are messages and none may."""
    room = queue.config.in_flight_max - queue.in_flight
    if room <= 0 and queue.order.first() is not None:
        raise TooManyInFlight(
            f"{queue.in_flight} messages of queue {queue.name!r} are in flight, at most {queue.config.in_flight_max} "
            "may be; acknowledge some, or raise its in_flight_max"
        )
    return max(0, room)


def _dead_letter(queue: QueueState, taken: list[Message], dead_letters: QueueState, now_ms: int) -> list[Message]:
    """Move messages received too often; return the others."""
    receives_max = queue.config.receives_max
    assert receives_max is not None
    dead = [message for message in taken if message.receive_count >= receives_max]
    del dead[max(0, dead_letters.config.depth_max - len(dead_letters.messages)) :]
    if not dead:
        return taken
    for message in dead:
        transfer(message, queue, dead_letters, origin=queue.name, now_ms=now_ms)
    queue.totals.dead_lettered += len(dead)
    gone = {message.number for message in dead}
    return [message for message in taken if message.number not in gone]


def transfer(message: Message, source: QueueState, target: QueueState, *, origin: str | None, now_ms: int) -> None:
    """Move a message that the source's order handed out."""
    target.shares_bodies |= source.shares_bodies
    target.move_in(moved(message, origin=origin, now_ms=now_ms))
    source.move_out(message)


def peeked(message: Message) -> PeekedMessage:
    """The message as a peek shows it."""
    return PeekedMessage(
        message.number,
        state_of(message),
        message.visible_ms,
        message.body,
        message.attributes,
        message.sent_ms,
        message.receive_count,
        message.group,
        message.origin,
        message.reason,
        message.attempts,
    )
