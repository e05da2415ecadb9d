"""Checking queues from the outside: whether what clients were told, all together, can be true.

    clients' histories ──► History ──► check ──► violations, each with the operations that show it

Nothing is searched: each rule looks for a few operations that contradict each other whatever happened in between, so
a history of n operations costs n log n. A rule speaks up only where there is no excuse: an operation without an answer
may have been carried out or not, at any time after it began; a server that started anew may have forgotten leases that
were not durable, and its clock may have been set meanwhile.
"""

from lavant.broker.queues.history.checker import check
from lavant.broker.queues.history.operations import History, HistoryViolation, RecordedOperation

__all__ = ["History", "HistoryViolation", "RecordedOperation", "check"]
