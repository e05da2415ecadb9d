"""De-duplication: within the window, a name stands for one message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from lavant.broker.queues.checking.evidence import Evidence, Sending
from lavant.broker.queues.checking.history import Violation
from lavant.broker.queues.checking.identity import key_of
from lavant.broker.queues.config import DEDUPLICATION_MS

DUPLICATE = "a name stands for one message within the window"


def check_duplicates(evidence: Evidence) -> Iterator[Violation]:
    by_key: dict[tuple[str, str, str], dict[int, list[Sending]]] = defaultdict(lambda: defaultdict(list))
    for number, sendings in evidence.by_number.items():
        for sending in sendings:
            key = key_of(evidence, sending)
            if key is not None:
                by_key[key][number].append(sending)
    for (queue, _, name), by_number in by_key.items():
        for one, other in pairwise(sorted(by_number)):
            ones, others = by_number[one], by_number[other]
            if _is_within_window(evidence, one, ones, other, others) and not _is_purged(evidence, queue, ones, others):
                yield Violation(
                    DUPLICATE,
                    f"{others[0].operation} sent {name!r} to {queue!r} as message {other}, "
                    f"and {ones[0].operation} as message {one} not long before",
                )


def _is_within_window(evidence: Evidence, one: int, ones: list[Sending], other: int, others: list[Sending]) -> bool:
    one_ms, other_ms = _sent_ms(evidence, one), _sent_ms(evidence, other)
    if one_ms is not None and other_ms is not None:
        return other_ms - one_ms < DEDUPLICATION_MS  # by the server's own time
    start_ms = min(sending.operation.start_ms for sending in ones)
    ends_ms = [sending.operation.end_ms for sending in others]
    end_ms = max((end for end in ends_ms if end is not None), default=None)
    if end_ms is None or None in ends_ms:
        return False
    return end_ms - start_ms < evidence.at_least_ms(DEDUPLICATION_MS) and not evidence.restarted(start_ms, end_ms)


def _is_purged(evidence: Evidence, queue: str, ones: list[Sending], others: list[Sending]) -> bool:
    """Whether the queue may have been purged in between: that forgets the name."""
    start_ms = min(sending.operation.start_ms for sending in ones)
    ends_ms = [sending.operation.end_ms for sending in others]
    return any(
        (purge.end_ms is None or purge.end_ms >= start_ms)
        and any(end_ms is None or purge.start_ms <= end_ms for end_ms in ends_ms)
        for purge in evidence.purges.get(queue, ())
    )


def _sent_ms(evidence: Evidence, number: int) -> int | None:
    takings = evidence.takings.get(number)
    return takings[0].delivery.sent_ms if takings else None
