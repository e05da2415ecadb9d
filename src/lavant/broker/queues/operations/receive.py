"""Receiving: leases on the next messages; those that were received too often become dead letters instead."""

from __future__ import annotations

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX
from lavant.broker.protocol.queues import Delivery, PeekedMessage, Receipt
from lavant.broker.queues.message import Message, moved, state_of
from lavant.broker.queues.queue import QueueState, size_of
from lavant.core.errors import TooManyInFlight

DEAD_LETTERS_MAX = 1000
"""In one receive. It may come back empty then, with more to be had."""


def receive(
    queue: QueueState, count: int, visibility_ms: int, now_ms: int, dead_letters: QueueState | None
) -> tuple[list[Delivery], int]:
    """What is delivered, and how many messages went to the dead-letter queue, which must be of the same order.

    At most `count`, of which `room_for` says how many there may be.

    A dead-letter queue that is missing or full takes nothing: its messages are delivered once more, never lost.
    """
    bytes_left = BATCH_BYTES_MAX
    leased: list[Message] = []
    buried = 0
    while len(leased) < count and bytes_left > 0 and buried < DEAD_LETTERS_MAX:
        taken = queue.order.take(count - len(leased), bytes_left)
        kept = taken if dead_letters is None else _bury(queue, taken, dead_letters, now_ms)
        queue.lease(kept, now_ms + visibility_ms, now_ms)
        leased += kept
        if len(kept) == len(taken):
            break
        buried += len(taken) - len(kept)
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
        )
        for message in leased
    ]
    if visibility_ms == 0:
        for message in leased:
            queue.give_back(message)
    return deliveries, buried


def room_for(queue: QueueState) -> int:
    """How many more may be in flight; raises if there are messages, and none of them may."""
    room = queue.config.in_flight_max - queue.in_flight
    if room <= 0 and queue.order.first() is not None:
        raise TooManyInFlight(
            f"{queue.in_flight} messages of queue {queue.name!r} are in flight, at most {queue.config.in_flight_max} "
            "may be; acknowledge some, or raise its in_flight_max"
        )
    return max(0, room)


def _bury(queue: QueueState, taken: list[Message], dead_letters: QueueState, now_ms: int) -> list[Message]:
    """Those of the messages that may be received once more; the others are moved."""
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
    """Move a message that the source's order gave out."""
    target.shares_bodies |= source.shares_bodies
    target.take_in(moved(message, origin=origin, now_ms=now_ms))
    source.hand_over(message)


def peeked(message: Message) -> PeekedMessage:
    """What somebody sees of a message who only looks."""
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
    )
