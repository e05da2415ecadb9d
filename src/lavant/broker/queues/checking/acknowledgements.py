"""What was acknowledged is gone, and who holds a lease may acknowledge."""

from __future__ import annotations

from collections.abc import Iterator

from lavant.broker.queues.checking.evidence import Attempt, Evidence, Taking
from lavant.broker.queues.checking.history import Violation
from lavant.core.errors import NotInFlight

GONE = "what is acknowledged is not received again"
STILL_THERE = "what is acknowledged is gone"
REFUSED = "who holds a lease is not refused"


def check_acknowledgements(evidence: Evidence) -> Iterator[Violation]:
    for number, attempts in evidence.acknowledgements.items():
        for attempt in attempts:
            taking = _taking_of(evidence, attempt)
            if taking is None:
                continue
            if attempt.is_confirmed:
                yield from _check_gone(evidence, number, attempt, taking)
            elif attempt.refused is not None:
                yield from _check_refusal(evidence, attempt, taking)
    for changes in evidence.changes.values():
        for change in changes:
            taking = _taking_of(evidence, change)
            if taking is not None and change.refused is not None and not _may_be_gone(evidence, change):
                yield from _check_refusal(evidence, change, taking)


def _check_gone(evidence: Evidence, number: int, attempt: Attempt, taking: Taking) -> Iterator[Violation]:
    """A receipt for a message that is gone counts, also if it has gone to a dead-letter queue.

    So it is certain that the message itself was acknowledged if it had nowhere to go, or its lease was in force. And if
    it is received again in the same stay in the same queue, which `first_received_ms` tells, it had not gone.
    """
    operation = attempt.operation
    assert operation.end_ms is not None
    is_certain = evidence.is_last(taking.queue) or evidence.is_held(taking, operation)
    stay = taking.queue, taking.delivery.first_received_ms
    for later in evidence.takings[number]:
        if later.start_ms <= operation.end_ms:
            continue
        if is_certain or stay == (later.queue, later.delivery.first_received_ms):
            yield Violation(GONE, f"{later.operation} got message {number}, after {operation} was confirmed")
    left = evidence.history.left
    if is_certain and left is not None and number in left:
        yield Violation(STILL_THERE, f"message {number} is in {left[number]!r}, though {operation} was confirmed")


def _check_refusal(evidence: Evidence, attempt: Attempt, taking: Taking) -> Iterator[Violation]:
    refused = attempt.refused
    assert refused is not None
    if attempt.operation.answer is not refused and evidence.is_held(taking, attempt.operation):
        yield Violation(
            REFUSED,
            f"{attempt.operation} was refused, for message {attempt.receipt.number} ({refused.code}: "
            f"{refused.reason}), though the lease from {taking.operation} was in force",
        )


def _may_be_gone(evidence: Evidence, change: Attempt) -> bool:
    """Whether a change of visibility may have come too late, for then it is rightly refused."""
    assert change.refused is not None
    end_ms = change.operation.end_ms
    assert end_ms is not None
    if change.refused.code != NotInFlight.__name__:
        return False
    others = [*evidence.acknowledgements.get(change.receipt.number, ()), *evidence.changes[change.receipt]]
    ends = [other.operation for other in others if other.is_possible and not other.visibility_ms]
    return any(operation.start_ms <= end_ms for operation in [*ends, *evidence.purges.get(change.queue, ())])


def _taking_of(evidence: Evidence, attempt: Attempt) -> Taking | None:
    """The delivery whose receipt is shown, if it is shown to the right queue."""
    takings = evidence.by_receipt.get(attempt.receipt)
    return takings[0] if takings and takings[0].queue == attempt.queue else None
