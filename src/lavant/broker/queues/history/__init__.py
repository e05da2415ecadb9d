"""A checker of queue histories: can everything that clients were told be true together?

    clients' histories ──► History ──► check ──► violations, each with the operations that prove it

There is no search: each rule looks for a few operations that contradict each other whatever happened in between, so a
history of n operations costs n log n. A rule reports only what has no excuse: an operation without an answer may have
taken effect or not, at any time after it began; a restarted server may have lost leases that were not durable, and its
clock may have been set.
"""

from lavant.broker.queues.history.checker import check
from lavant.broker.queues.history.operations import History, HistoryViolation, RecordedOperation

__all__ = ["History", "HistoryViolation", "RecordedOperation", "check"]
