"""Histories written by hand, in few words."""

from __future__ import annotations

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Delivery,
    Done,
    MoveStarted,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    SentEntry,
    StartMove,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.broker.queues.history import History, RecordedOperation, check

STALE = Refused("StaleReceipt", "somebody else has it")
CONFIGS = {
    "dead": QueueConfig(visibility_ms=1_000),
    "bag": QueueConfig(visibility_ms=1_000),
    "mortal": QueueConfig(visibility_ms=1_000, dead_letters="dead", receives_max=3),
    "line": QueueConfig(order="in-order", visibility_ms=1_000),
}


class Script:
    """Times are in milliseconds; an end of None is an operation that was not answered."""

    def __init__(self) -> None:
        self.operations: list[RecordedOperation] = []
        self.restarts_ms: list[int] = []

    def broken(self, left: dict[int, str] | None = None, *, clock_ppm: int = 0, clock_jumps_ms: int = 0) -> list[str]:
        """The rules that are broken."""
        history = History(
            configs=CONFIGS,
            operations=self.operations,
            restarts_ms=self.restarts_ms,
            left=left,
            clock_ppm=clock_ppm,
            clock_jumps_ms=clock_jumps_ms,
        )
        return list(dict.fromkeys(violation.rule for violation in check(history)))

    def add(self, client: str, start_ms: int, end_ms: int | None, request: Request, answer: Answer) -> None:
        self.operations.append(
            RecordedOperation(
                client=client,
                start_ms=start_ms,
                end_ms=end_ms,
                request=request,
                answer=None if end_ms is None else answer,
            )
        )

    def send(
        self,
        number: int | Refused,
        start_ms: int,
        end_ms: int | None,
        *,
        queue: str = "bag",
        body: bytes | None = None,
        group: str = "",
        name: str = "",
    ) -> None:
        """The body is the number, unless told otherwise."""
        entry = SendEntry(
            b"%d" % number if body is None and isinstance(number, int) else body or b"", b"", None, group, name
        )
        answer = number if isinstance(number, Refused) else SentEntry(number)
        self.add("sender", start_ms, end_ms, Send(queue, [entry]), Sent([answer]))

    def receive(
        self,
        numbers: int | list[int],
        start_ms: int,
        end_ms: int,
        *,
        lease: int,
        queue: str = "bag",
        body: bytes | None = None,
        group: str = "",
        visibility_ms: int | None = None,
        sent_ms: int = 0,
        first_ms: int = 0,
        times: int = 1,
    ) -> None:
        """Leases count up within the receive."""
        numbers = [numbers] if isinstance(numbers, int) else numbers
        deliveries = [
            Delivery(
                Receipt(number, lease + place),
                b"%d" % number if body is None else body,
                b"",
                sent_ms,
                first_ms,
                times,
                group,
                "",
            )
            for place, number in enumerate(numbers)
        ]
        self.add(f"receiver {lease}", start_ms, end_ms, Receive(queue, 10, visibility_ms), Received(deliveries))

    def acknowledge(
        self,
        number: int,
        start_ms: int,
        end_ms: int | None,
        *,
        lease: int,
        queue: str = "bag",
        refused: Refused | None = None,
    ) -> None:
        answer = Acknowledged({} if refused is None else {0: refused})
        self.add(f"receiver {lease}", start_ms, end_ms, Acknowledge(queue, [Receipt(number, lease)]), answer)

    def change(
        self,
        number: int,
        visibility_ms: int,
        start_ms: int,
        end_ms: int | None,
        *,
        lease: int,
        queue: str = "bag",
        refused: Refused | None = None,
    ) -> None:
        change = VisibilityChange(Receipt(number, lease), visibility_ms)
        answer = VisibilityChanged({} if refused is None else {0: refused})
        self.add(f"receiver {lease}", start_ms, end_ms, ChangeVisibility(queue, [change]), answer)

    def purge(self, start_ms: int, end_ms: int | None, *, queue: str = "bag") -> None:
        self.add("sweeper", start_ms, end_ms, PurgeQueue(queue), Done())

    def move(self, start_ms: int, end_ms: int | None, *, source: str = "dead") -> None:
        self.add("mover", start_ms, end_ms, StartMove(source), MoveStarted(1))
