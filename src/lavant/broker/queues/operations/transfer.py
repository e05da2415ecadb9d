"""Queues of subscriptions that move between brokers: the requests that they take meanwhile, and their messages.

leaving      as always, but its settings stay as they are
left         what is in flight can be settled; everything else is redirected
arriving     takes messages, and delivers none yet; its settings stay as they are
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from lavant.broker.protocol.commands import QueryFor
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    ConfigureQueue,
    DeleteQueue,
    PurgeQueue,
    Release,
    StartMove,
    TagQueue,
)
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.message import Message
from lavant.broker.queues.queue import QueueState, size_of
from lavant.core.errors import SubscriptionMoved, SubscriptionMoving

SETTLING = (Acknowledge, ChangeVisibility, Release)
FIXED = (ConfigureQueue, DeleteQueue, PurgeQueue, StartMove, TagQueue)


class RelocationStage(enum.Enum):
    LEAVING = "leaving"
    LEFT = "left"
    ARRIVING = "arriving"


class Relocation(msgspec.Struct, frozen=True):
    """Where a queue goes, or where it comes from."""

    stage: RelocationStage
    subscription: str
    broker: str
    """The name of the other broker."""
    address: str = ""
    until_ms: int = 1 << 62
    """Until then, it is redirected."""

    def moved(self) -> SubscriptionMoved:
        where = f"connect to {self.address}" if self.address else "connect to that broker"
        return SubscriptionMoved(
            f"subscription {self.subscription!r} has moved to broker {self.broker!r}; {where}", self.address
        )

    def moving(self) -> SubscriptionMoving:
        way = f"moves to broker {self.broker!r}"
        if self.stage is RelocationStage.ARRIVING:
            way = f"arrives from broker {self.broker!r}"
        return SubscriptionMoving(f"subscription {self.subscription!r} {way}; try again in a moment")


class QueueTransfers:
    """Everything that is done with queues that move. `changed` is called after each change of a queue's messages."""

    def __init__(self, directory: Directory, counters: QueueCounters, changed: Callable[[QueueState], None]) -> None:
        self.relocations: dict[str, Relocation] = {}
        """By name of the queue."""
        self._directory = directory
        self._counters = counters
        self._changed = changed

    def check(self, request: Any, now_ms: int) -> None:
        """Raise if a request is for a queue that does not take it now."""
        for name in (getattr(request, "queue", None), getattr(request, "source", None)):
            if not isinstance(name, str):
                continue
            relocation = self.relocations.get(name)
            if relocation is None or relocation.until_ms <= now_ms:
                continue
            if relocation.stage is RelocationStage.LEFT:
                if not isinstance(request, (*SETTLING, QueryFor)) or self._directory.find(name) is None:
                    raise relocation.moved()
            elif isinstance(request, FIXED):
                raise relocation.moving()

    def check_shared(self, queue: str, now_ms: int) -> None:
        """Raise if a queue moves, so that no other subscription can deliver into it: it would stay without a queue."""
        relocation = self.relocations.get(queue)
        if relocation is None or relocation.until_ms <= now_ms:
            return
        raise relocation.moved() if relocation.stage is RelocationStage.LEFT else relocation.moving()

    def is_arriving(self, queue: str) -> bool:
        """Whether a queue delivers nothing yet."""
        return self._is(queue, RelocationStage.ARRIVING)

    def has_left(self, queue: str) -> bool:
        """Whether only messages in flight are still here."""
        return self._is(queue, RelocationStage.LEFT)

    def _is(self, queue: str, stage: RelocationStage) -> bool:
        relocation = self.relocations.get(queue)
        return relocation is not None and relocation.stage is stage

    def find(self, queue: str) -> QueueState:
        """Raises if there is none of that name. Read only."""
        return self._directory[queue]

    def tag(self, queue: str, tags: dict[str, str]) -> None:
        self._directory.tag(self._directory[queue], tags)

    def detach(self, queue: str) -> None:
        """Give a queue another serial: fan-outs that were matched before do not reach it any more."""
        self._directory.renumber(self._directory[queue])

    def take_in(self, queue: str, messages: Sequence[Message]) -> None:
        """Add messages of another broker, which get the next numbers."""
        found = self._directory[queue]
        for message in messages:
            self._counters.number += 1
            message.number = self._counters.number
            if found.shares_bodies:
                self._counters.memory -= self._counters.bodies.join(message)
        found.enter(messages, sum(map(size_of, messages)))
        self._changed(found)

    def arrange(self, queue: str, numbers: Iterable[int], *, above: int) -> None:
        """Give messages of a queue, none of them in flight, another order and new numbers; the others are deleted."""
        found = self._directory[queue]
        messages = [found.messages[number] for number in numbers]
        self._counters.number = found.arrived_above = max(self._counters.number, above)
        shares_bodies = found.shares_bodies
        found.purge()
        found.shares_bodies = shares_bodies
        self.take_in(queue, messages)

    def drop(self, queue: str, numbers: Iterable[int]) -> None:
        """Delete messages, in any state."""
        found = self._directory[queue]
        messages = [found.messages.pop(number) for number in numbers if number in found.messages]
        if messages:
            found.remove(messages)
            self._changed(found)
