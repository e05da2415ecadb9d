"""Indexes a history by message: who sent it, who received it, and how each delivery was settled."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Delivery,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Refused,
    Release,
    Send,
    SendEntry,
    Sent,
    StartMove,
    VisibilityChanged,
)
from lavant.broker.queues.history.operations import History, RecordedOperation
from lavant.core.errors import InvalidValue

SLACK_MS = 2
"""Both clocks show whole milliseconds."""
_MILLION = 1_000_000


class SendRecord(NamedTuple):
    """One entry of a send."""

    operation: RecordedOperation
    queue: str
    entry: SendEntry
    number: int | None
    """None if there was no answer, or it was refused."""
    refused: Refused | None


class ReceiveRecord(NamedTuple):
    """One message that a receive delivered."""

    operation: RecordedOperation
    queue: str
    delivery: Delivery
    visibility_ms: int

    @property
    def start_ms(self) -> int:
        return self.operation.start_ms

    @property
    def end_ms(self) -> int:
        assert self.operation.end_ms is not None
        return self.operation.end_ms


class Settlement(NamedTuple):
    """One acknowledgement, or change of visibility."""

    operation: RecordedOperation
    queue: str
    receipt: Receipt
    is_confirmed: bool
    refused: Refused | None
    visibility_ms: int = 0

    @property
    def is_possible(self) -> bool:
        return self.refused is None


class Evidence:
    """The history by message. The number of a message whose send was not answered comes from its receives."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sendings: list[SendRecord] = []
        self.by_body: dict[bytes, SendRecord] = {}
        self.by_number: dict[int, list[SendRecord]] = defaultdict(list)
        """Several if all but one were duplicates; the earliest first."""
        self.records: dict[int, list[ReceiveRecord]] = defaultdict(list)
        """By message, in the order of their leases."""
        self.by_receipt: dict[Receipt, list[ReceiveRecord]] = defaultdict(list)
        self.receives: list[tuple[RecordedOperation, list[ReceiveRecord]]] = []
        self.acknowledgements: dict[int, list[Settlement]] = defaultdict(list)
        self.changes: dict[Receipt, list[Settlement]] = defaultdict(list)
        self.purges: dict[str, list[RecordedOperation]] = defaultdict(list)
        self._restarts_ms = sorted(history.restarts_ms)
        moves: list[StartMove] = []
        for operation in history.operations:
            match operation.request:
                case Send() as send:
                    self._add_send(operation, send)
                case Receive() as receive:
                    self._add_receive(operation, receive)
                case Acknowledge() | ChangeVisibility() | Release():
                    self._add_settlements(operation)
                case PurgeQueue() as purge if not isinstance(operation.answer, Refused):
                    self.purges[purge.queue].append(operation)
                case StartMove() as move if not isinstance(operation.answer, Refused):
                    moves.append(move)
                case _:
                    pass
        self._numbers: dict[bytes, int] = {}
        """Numbers under which each body was delivered."""
        for number, records in self.records.items():
            records.sort(key=lambda record: record.delivery.receipt.lease)
            self._numbers.update((record.delivery.body, number) for record in records)
        for sending in sorted(self.sendings, key=lambda sending: sending.operation.start_ms):
            known = self.number_of(sending)
            if known is not None:
                self.by_number[known].append(sending)
        self._ways_out = self._trace_ways(moves)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def restarted(self, from_ms: int, to_ms: int) -> bool:
        """Whether the server restarted in that time."""
        place = bisect_left(self._restarts_ms, from_ms)
        return place < len(self._restarts_ms) and self._restarts_ms[place] <= to_ms

    def first_restart_ms(self, from_ms: int, default_ms: int) -> int:
        """The first restart after `from_ms`, if it was before `default_ms`."""
        place = bisect_left(self._restarts_ms, from_ms)
        return min(default_ms, self._restarts_ms[place]) if place < len(self._restarts_ms) else default_ms

    def at_least_ms(self, duration_ms: int) -> int:
        """The shortest real time that a duration of the server's clock can be, without a restart."""
        return duration_ms * _MILLION // (_MILLION + self.history.clock_ppm) - SLACK_MS

    def expires_ms(self, sending: SendRecord) -> int:
        """The earliest time at which a message may have expired."""
        retention_ms = self.history.configs[sending.queue].retention_ms - self.history.clock_jumps_ms
        return sending.operation.start_ms + max(0, self.at_least_ms(retention_ms))

    def reachable(self, queue: str) -> list[str]:
        """Queues in which messages sent to this one may be."""
        found = [queue]
        for name in found:
            found += [target for target in self._ways_out.get(name, ()) if target not in found]
        return found

    def is_last(self, queue: str) -> bool:
        """Whether messages leave it only by acknowledgement, purge and expiry."""
        return not self._ways_out.get(queue)

    def is_only(self, queue: str) -> bool:
        """Whether, in addition, messages enter it only by being sent."""
        return self.is_last(queue) and all(queue not in targets for targets in self._ways_out.values())

    def held_until_ms(self, record: ReceiveRecord, by: RecordedOperation) -> int:
        """The earliest end of a lease, as a later operation must have seen it.

        The lease itself, and each change that may have taken effect, set it from their start on. A change that was
        confirmed before overrides all that was over when it began.
        """
        end_ms = by.end_ms
        assert end_ms is not None
        says: list[tuple[int, int | None, int]] = [(record.start_ms, record.end_ms, record.visibility_ms)]
        settled_ms = -1
        for change in self.changes.get(record.delivery.receipt, ()):
            operation = change.operation
            if not change.is_possible or operation.start_ms > end_ms:
                continue
            says.append((operation.start_ms, operation.end_ms, change.visibility_ms))
            if operation.end_ms is not None and operation.end_ms < by.start_ms:
                settled_ms = max(settled_ms, operation.start_ms)
        return min(
            start_ms + (self.at_least_ms(visibility_ms) if visibility_ms else 0)
            for start_ms, end, visibility_ms in says
            if end is None or end >= settled_ms
        )

    def is_held(self, record: ReceiveRecord, by: RecordedOperation) -> bool:
        """Whether a later operation certainly found the lease in force, unless the message was gone."""
        assert by.end_ms is not None
        return by.end_ms < self.held_until_ms(record, by) and not self.restarted(record.start_ms, by.end_ms)

    def number_of(self, sending: SendRecord) -> int | None:
        """The number of the message that an entry became, if known."""
        if sending.number is not None:
            return sending.number
        return self._numbers.get(sending.entry.body)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_send(self, operation: RecordedOperation, send: Send) -> None:
        answers: list[object] = [None] * len(send.entries)
        if isinstance(operation.answer, Sent):
            answers = list(operation.answer.entries)
        elif isinstance(operation.answer, Refused):
            answers = [operation.answer] * len(send.entries)
        for entry, answer in zip(send.entries, answers, strict=True):
            refused = answer if isinstance(answer, Refused) else None
            number = getattr(answer, "number", None)
            sending = SendRecord(operation, send.queue, entry, number, refused)
            if entry.body in self.by_body:
                raise InvalidValue(
                    f"two messages have the body {entry.body[:40]!r}; only histories with distinct bodies can be "
                    "checked"
                )
            self.by_body[entry.body] = sending
            self.sendings.append(sending)

    def _add_receive(self, operation: RecordedOperation, receive: Receive) -> None:
        if not isinstance(operation.answer, Received):
            return
        visibility_ms = receive.visibility_ms
        if visibility_ms is None:
            visibility_ms = self.history.configs[receive.queue].visibility_ms
        received = [
            ReceiveRecord(operation, receive.queue, delivery, visibility_ms) for delivery in operation.answer.deliveries
        ]
        for record in received:
            self.records[record.delivery.receipt.number].append(record)
            self.by_receipt[record.delivery.receipt].append(record)
        self.receives.append((operation, received))

    def _add_settlements(self, operation: RecordedOperation) -> None:
        for settlement in _settlements(operation):
            if isinstance(operation.request, Acknowledge):
                self.acknowledgements[settlement.receipt.number].append(settlement)
            else:
                self.changes[settlement.receipt].append(settlement)

    def _trace_ways(self, moves: list[StartMove]) -> dict[str, list[str]]:
        """For each queue, the queues to which its messages may move."""
        ways: dict[str, list[str]] = defaultdict(list)
        for name, config in self.history.configs.items():
            if config.dead_letters is not None:
                ways[name].append(config.dead_letters)
        origins = {target: [name for name in ways if target in ways[name]] for target in self.history.configs}
        for move in moves:
            targets = origins[move.source] if move.destination is None else [move.destination]
            ways[move.source] += [target for target in targets if target not in ways[move.source]]
        return ways


def _settlements(operation: RecordedOperation) -> Iterator[Settlement]:
    request, answer = operation.request, operation.answer
    assert isinstance(request, Acknowledge | ChangeVisibility | Release)
    if isinstance(request, Acknowledge | Release):
        wanted = [(receipt, 0) for receipt in request.receipts]
    else:
        wanted = [(change.receipt, change.visibility_ms) for change in request.changes]
    refused = answer.refused if isinstance(answer, Acknowledged | VisibilityChanged) else {}
    for place, (receipt, visibility_ms) in enumerate(wanted):
        yield Settlement(
            operation,
            request.queue,
            receipt,
            is_confirmed=answer is not None and not isinstance(answer, Refused) and place not in refused,
            refused=answer if isinstance(answer, Refused) else refused.get(place),
            visibility_ms=visibility_ms,
        )
