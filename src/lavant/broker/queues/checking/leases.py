"""Nobody shares a lease, and nothing is received more often than its queue allows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from lavant.broker.queues.checking.evidence import Evidence, Taking
from lavant.broker.queues.checking.history import Violation

SHARED = "nobody shares a lease"
UNIQUE = "a lease is given once"
TOO_OFTEN = "what was received too often is a dead letter"


def check_leases(evidence: Evidence) -> Iterator[Violation]:
    yield from _check_unique(evidence)
    for number, takings in evidence.takings.items():
        for one, other in pairwise(takings):
            if one.delivery.receipt != other.delivery.receipt and evidence.is_held(one, other.operation):
                until_ms = evidence.held_until_ms(one, other.operation)
                yield Violation(
                    SHARED,
                    f"{one.operation} got message {number} until {until_ms} ms at least, "
                    f"and {other.operation} got it too",
                )
        for taking in takings:
            config = evidence.history.configs[taking.queue]
            count = taking.delivery.receive_count
            if config.dead_letters is not None and config.receives_max is not None and count > config.receives_max:
                yield Violation(
                    TOO_OFTEN,
                    f"{taking.operation} got message {number}, for the {count}th time from {taking.queue!r}, "
                    f"where {config.receives_max} are allowed",
                )


def _check_unique(evidence: Evidence) -> Iterator[Violation]:
    """Also over restarts, and for different messages: by its lease a receipt is told from one that is out of date."""
    first: dict[int, Taking] = {}
    for _, takings in evidence.receives:
        for taking in takings:
            lease = taking.delivery.receipt.lease
            other = first.setdefault(lease, taking)
            if other is not taking:
                yield Violation(
                    UNIQUE,
                    f"{other.operation} got message {other.delivery.receipt.number}, and {taking.operation} message "
                    f"{taking.delivery.receipt.number}, both under lease {lease}",
                )
