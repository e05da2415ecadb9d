"""Small machines for tests, and short ways to ask them."""

from __future__ import annotations

from typing import Any, TypeVar

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    CreateQueue,
    Delivery,
    Described,
    DescribeQueue,
    Open,
    Peek,
    Peeked,
    PeekedMessage,
    QueueFigures,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    SentEntry,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.machine import Queues

Q = "orders"
MINUTE_MS = 60_000

_A = TypeVar("_A", bound=Answer)


class QueueMachine(Queues):
    """A machine with the questions that tests ask."""

    def ask(self, request: Request, kind: type[_A], now_ms: int | None = None) -> _A:
        """Now, if no time is given."""
        answer = self.handle(request, self.now_ms if now_ms is None else now_ms)
        assert isinstance(answer, kind)
        return answer

    def create(self, queue: str = Q, **settings: Any) -> None:
        self.handle(CreateQueue(queue, QueueConfig(**settings)), self.now_ms)

    def send(self, *bodies: bytes, queue: str = Q, now_ms: int | None = None, **entry: Any) -> list[int]:
        """The numbers of messages that are all alike but for their bodies; all must be accepted."""
        sent = self.ask(Send(queue, [SendEntry(body, **entry) for body in bodies]), Sent, now_ms)
        return [answer.number for answer in sent.entries if isinstance(answer, SentEntry)]

    def try_to_send(self, *entries: SendEntry, queue: str = Q, now_ms: int | None = None) -> list[int | str]:
        """A number for each message, or why it was refused."""
        sent = self.ask(Send(queue, list(entries)), Sent, now_ms)
        return [answer.code if isinstance(answer, Refused) else answer.number for answer in sent.entries]

    def receive(
        self, count: int = 1, queue: str = Q, now_ms: int | None = None, visibility_ms: int | None = None
    ) -> list[Delivery]:
        return self.ask(Receive(queue, count, visibility_ms), Received, now_ms).deliveries

    def acknowledge(self, *receipts: Receipt, queue: str = Q, now_ms: int | None = None) -> dict[int, str]:
        """What was refused, by place."""
        answer = self.ask(Acknowledge(queue, list(receipts)), Acknowledged, now_ms)
        return {place: refused.code for place, refused in answer.refused.items()}

    def change(self, *changes: tuple[Receipt, int], queue: str = Q, now_ms: int | None = None) -> dict[int, str]:
        """What was refused, by place."""
        request = ChangeVisibility(queue, [VisibilityChange(*change) for change in changes])
        answer = self.ask(request, VisibilityChanged, now_ms)
        return {place: refused.code for place, refused in answer.refused.items()}

    def figures(self, queue: str = Q, now_ms: int | None = None) -> QueueFigures:
        return self.ask(DescribeQueue(queue), Described, now_ms).figures

    def states(self, queue: str = Q, now_ms: int | None = None) -> tuple[int, int, int]:
        """How many messages are visible, in flight, and delayed."""
        figures = self.figures(queue, now_ms)
        return figures.visible, figures.in_flight, figures.delayed

    def peek(self, queue: str = Q, count: int = 10, after: int = 0, now_ms: int | None = None) -> list[PeekedMessage]:
        return self.ask(Peek(queue, count, after), Peeked, now_ms).messages


def machine_with(queue: str = Q, **settings: Any) -> QueueMachine:
    """A machine with one queue."""
    machine = QueueMachine()
    machine.handle(Open(1, RULES), 0)
    machine.create(queue, **settings)
    return machine


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def receipts(deliveries: list[Delivery]) -> list[Receipt]:
    return [delivery.receipt for delivery in deliveries]


def snapshot(machine: Queues) -> bytes:
    return b"".join(machine.snapshot())
