"""Nothing is lost: what was confirmed or received is acknowledged, or purged, or expired, or still there."""

from __future__ import annotations

from collections.abc import Iterator

from lavant.broker.queues.checking.evidence import Evidence, Sending
from lavant.broker.queues.checking.history import Violation

LOST = "what was confirmed is not lost"


def check_losses(evidence: Evidence) -> Iterator[Violation]:
    left = evidence.history.left
    if left is None:
        return
    over_ms = max((_last_ms(sending) for sending in evidence.sendings), default=0)
    over_ms = max([over_ms, *(taking.end_ms for takings in evidence.takings.values() for taking in takings)])
    for number, (sending, *_) in evidence.by_number.items():
        if number in left or _was_ended(evidence, sending, number, over_ms):
            continue
        takings = evidence.takings.get(number)
        if takings:
            yield Violation(
                LOST, f"message {number} is gone, though {takings[-1].operation} got it, and nobody acknowledged it"
            )
        else:
            yield Violation(
                LOST, f"message {number} was never received and is gone, though {sending.operation} sent it"
            )


def _was_ended(evidence: Evidence, sending: Sending, number: int, over_ms: int) -> bool:
    """Whether there is an explanation."""
    takings = evidence.takings.get(number)
    last_ms = takings[-1].start_ms if takings else 0
    for attempt in evidence.acknowledgements.get(number, ()):
        end_ms = attempt.operation.end_ms
        # One that was over when the message was received again has not ended it.
        if attempt.is_possible and (end_ms is None or end_ms >= last_ms):
            return True
    for queue in evidence.reachable(sending.queue):
        for purge in evidence.purges.get(queue, ()):
            if purge.end_ms is None or purge.end_ms >= max(sending.operation.start_ms, last_ms):
                return True
    return over_ms >= evidence.expires_ms(sending)


def _last_ms(sending: Sending) -> int:
    operation = sending.operation
    return operation.start_ms if operation.end_ms is None else operation.end_ms
