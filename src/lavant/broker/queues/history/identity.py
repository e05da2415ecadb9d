"""Identity rules: messages are received as they were sent, and a number stands for one message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lavant.broker.queues.history.evidence import Evidence, ReceiveRecord, SendRecord
from lavant.broker.queues.history.operations import HistoryViolation

RECEIVED_UNSENT = "what is received was sent"
NUMBERS = "a number stands for one message"
NUMBERS_RISE = "numbers rise in the order of sending"


def check_identity(evidence: Evidence) -> Iterator[HistoryViolation]:
    for number, records in evidence.records.items():
        for record in records:
            problem = _problem_with(evidence, record)
            if problem is not None:
                yield HistoryViolation(RECEIVED_UNSENT, f"{record.operation} got message {number}, {problem}")
    yield from _check_numbers(evidence)
    yield from _check_rising(evidence)


def _problem_with(evidence: Evidence, record: ReceiveRecord) -> str | None:
    delivery = record.delivery
    sending = evidence.by_body.get(delivery.body)
    if sending is None:
        return f"{delivery.body[:40]!r}, which was never sent"
    operation = sending.operation
    if sending.refused is not None:
        return f"which was refused to {operation}: {sending.refused.reason}"
    if record.end_ms < operation.start_ms:
        return f"which was sent only later, by {operation}"
    if sending.number is not None and sending.number != delivery.receipt.number:
        return f"{delivery.body[:40]!r}, which {operation} was told is message {sending.number}"
    if record.queue not in evidence.reachable(sending.queue):
        return f"from queue {record.queue!r}, but {operation} sent it to {sending.queue!r}"
    if (sending.entry.attributes, sending.entry.group) != (delivery.attributes, delivery.group):
        return f"with other attributes, or another group, than {operation} sent: {delivery}"
    return None


def _check_numbers(evidence: Evidence) -> Iterator[HistoryViolation]:
    """Several sends may share a number only if one was a duplicate of the other."""
    for number, records in evidence.records.items():
        bodies = list(dict.fromkeys(record.delivery.body for record in records))
        if len(bodies) > 1:
            yield HistoryViolation(
                NUMBERS, f"message {number} was received as {bodies[0][:40]!r} and as {bodies[1][:40]!r}"
            )
    for number, sendings in evidence.by_number.items():
        for one, other in pairwise(sendings):
            if key_of(evidence, one) is None or key_of(evidence, one) != key_of(evidence, other):
                yield HistoryViolation(NUMBERS, f"{one.operation} and {other.operation} both sent message {number}")


def _check_rising(evidence: Evidence) -> Iterator[HistoryViolation]:
    """A send that began after another ended has the larger number, unless it is a duplicate."""
    seen: set[int] = set()
    new: list[tuple[int, int, int, SendRecord]] = []
    for sending in sorted(evidence.sendings, key=lambda sending: sending.operation.start_ms):
        number, end_ms = sending.number, sending.operation.end_ms
        if number is None or end_ms is None or number in seen:
            continue
        seen.add(number)
        if key_of(evidence, sending) is None:
            new.append((sending.operation.start_ms, end_ms, number, sending))
    over = sorted(new, key=lambda each: (each[1], each[2]))
    place, highest, of = 0, 0, None
    for start_ms, _, number, sending in new:
        while place < len(over) and over[place][1] < start_ms:
            if over[place][2] > highest:
                highest, of = over[place][2], over[place][3]
            place += 1
        if number < highest and of is not None:
            yield HistoryViolation(
                NUMBERS_RISE, f"{sending.operation} was told message {number}, after {of.operation} was told {highest}"
            )


def key_of(evidence: Evidence, sending: SendRecord) -> tuple[str, str, str] | None:
    """The key by which a queue detects duplicates of an entry; None if it has none."""
    config, entry = evidence.history.configs[sending.queue], sending.entry
    if config.order != "in-order" or not entry.deduplication:
        return None  # bodies are all distinct, so none is a duplicate by content
    return sending.queue, entry.group if config.deduplicate_within_group else "", entry.deduplication
