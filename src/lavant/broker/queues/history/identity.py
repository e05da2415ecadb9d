"""What is received was sent, as it is; and a number means one message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lavant.broker.queues.history.evidence import Evidence, SendRecord, Taking
from lavant.broker.queues.history.operations import HistoryViolation

RECEIVED_UNSENT = "what is received was sent"
NUMBERS = "a number means one message"
NUMBERS_RISE = "numbers rise in the order of sending"


def check_identity(evidence: Evidence) -> Iterator[HistoryViolation]:
    for number, takings in evidence.takings.items():
        for taking in takings:
            problem = _problem_with(evidence, taking)
            if problem is not None:
                yield HistoryViolation(RECEIVED_UNSENT, f"{taking.operation} got message {number}, {problem}")
    yield from _check_numbers(evidence)
    yield from _check_rising(evidence)


def _problem_with(evidence: Evidence, taking: Taking) -> str | None:
    delivery = taking.delivery
    sending = evidence.by_body.get(delivery.body)
    if sending is None:
        return f"{delivery.body[:40]!r}, which nobody sent"
    operation = sending.operation
    if sending.refused is not None:
        return f"which was refused to {operation}: {sending.refused.reason}"
    if taking.end_ms < operation.start_ms:
        return f"which was sent only later, by {operation}"
    if sending.number is not None and sending.number != delivery.receipt.number:
        return f"{delivery.body[:40]!r}, which {operation} was told is message {sending.number}"
    if taking.queue not in evidence.reachable(sending.queue):
        return f"from queue {taking.queue!r}, but {operation} sent it to {sending.queue!r}"
    if (sending.entry.attributes, sending.entry.group) != (delivery.attributes, delivery.group):
        return f"with other attributes, or another group, than {operation} sent: {delivery}"
    return None


def _check_numbers(evidence: Evidence) -> Iterator[HistoryViolation]:
    """Several sends may have been told the same number only if one was taken for a duplicate of the other."""
    for number, takings in evidence.takings.items():
        bodies = list(dict.fromkeys(taking.delivery.body for taking in takings))
        if len(bodies) > 1:
            yield HistoryViolation(
                NUMBERS, f"message {number} was received as {bodies[0][:40]!r} and as {bodies[1][:40]!r}"
            )
    for number, sendings in evidence.by_number.items():
        for one, other in pairwise(sendings):
            if key_of(evidence, one) is None or key_of(evidence, one) != key_of(evidence, other):
                yield HistoryViolation(NUMBERS, f"{one.operation} and {other.operation} both sent message {number}")


def _check_rising(evidence: Evidence) -> Iterator[HistoryViolation]:
    """A send that began when another was over has the larger number, unless it is a duplicate."""
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
    """By what a queue knows duplicates of an entry; none if it has no name."""
    config, entry = evidence.history.configs[sending.queue], sending.entry
    if config.order != "in-order" or not entry.deduplication:
        return None  # bodies are all different, so none is a duplicate by its content
    return sending.queue, entry.group if config.deduplicate_within_group else "", entry.deduplication
