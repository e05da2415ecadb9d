"""Values of subscriptions that move: publications by origin, and messages as they cross between brokers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lavant.broker.protocol.federation import MovingMessage, MovingSubscription
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.transfer import QueueTransfers
from lavant.core.errors import DuplicateSubscription, SubscriptionMoving


class OriginNumbers:
    """Publications by origin and number."""

    def __init__(self, columns: Iterable[tuple[str, bytes]] = ()) -> None:
        self._numbers = {origin: np.frombuffer(numbers, "<u8").tolist() for origin, numbers in columns}

    def __len__(self) -> int:
        return sum(map(len, self._numbers.values()))

    def add(self, origin: str, number: int) -> None:
        self._numbers.setdefault(origin, []).append(number)

    def columns(self) -> list[tuple[str, bytes]]:
        return [(origin, np.array(numbers, "<u8").tobytes()) for origin, numbers in self._numbers.items()]

    def pairs(self) -> set[tuple[str, int]]:
        return {(origin, number) for origin, numbers in self._numbers.items() for number in numbers}


def exported(message: Message, now_ms: int) -> MovingMessage:
    """A message as it follows its subscription."""
    return MovingMessage(
        message.number,
        message.body,
        message.attributes,
        message.sent_ms,
        max(0, now_ms - message.entered_ms),
        max(0, message.visible_ms - now_ms),
        message.receive_count,
        message.first_received_ms,
        message.group,
        message.deduplication,
        message.origin,
        message.reason,
        message.attempts,
    )


def imported(moving: MovingMessage, now_ms: int) -> Message:
    return Message(
        0,
        moving.body,
        moving.attributes,
        moving.sent_ms,
        max(0, now_ms - moving.age_ms),
        now_ms + moving.delay_ms if moving.delay_ms else 0,
        0,
        moving.receive_count,
        moving.first_received_ms,
        moving.group,
        moving.deduplication,
        moving.origin,
        moving.reason,
        moving.attempts,
    )


def subscribe_of(wanted: MovingSubscription) -> Subscribe:
    return Subscribe(
        wanted.filter,
        wanted.name,
        wanted.queue,
        wanted.namespace,
        wanted.config,
        wanted.webhook,
        wanted.lease_ms,
    )


def draining(name: str, source: str) -> SubscriptionMoving:
    """A subscription cannot move on before its last move has ended."""
    return SubscriptionMoving(
        f"subscription {name!r} has come from broker {source!r}, where some of its messages are still in flight or "
        "become dead letters; move it again when they are acknowledged, or their leases have ended"
    )


def occupied(name: str, queue: str, transfers: QueueTransfers) -> DuplicateSubscription:
    """Why a subscription cannot come: what has its name here goes away by itself, or somebody has to delete it."""
    if transfers.has_left(queue):
        return DuplicateSubscription(
            f"a subscription {name!r} has just left the new broker, where some of its messages are still in flight; "
            "move it again when they are acknowledged, or their leases have ended"
        )
    if transfers.is_arriving(queue):
        return DuplicateSubscription(
            f"an earlier move of a subscription {name!r} to the new broker has not ended there; try again in a moment"
        )
    return DuplicateSubscription(
        f"there is another subscription {name!r}, or a queue {queue!r}, at the new broker already; delete that one, "
        "or move to another broker"
    )
