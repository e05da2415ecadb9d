"""Counters of one queue and of all queues together."""

from __future__ import annotations

import msgspec

from lavant.broker.queues.accounting.quotas import Usages
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.operations.shared_bodies import SharedBodies


class QueueTotals(msgspec.Struct, array_like=True, gc=False):
    """`QueueFigures`, which shows them, says what each one counts."""

    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    expired: int = 0
    returned: int = 0
    dead_lettered: int = 0
    deduplicated: int = 0


LEASE_BITS = 40
EPOCH_MAX = (1 << 24) - 1
"""An epoch and a count of leases fit into 64 bits."""


class QueueCounters:
    """The last message number, lease, task and serial that were assigned, and the bytes held; all but the bytes only
    grow.

    Also holds the rules in force, the bodies that queues share, and the usage of each namespace.
    """

    __slots__ = ("bodies", "bytes", "lease", "memory", "names", "number", "rules", "serial", "task", "usages")

    def __init__(self, *, number: int = 0, lease: int = 0, task: int = 0) -> None:
        self.number = number
        self.lease = lease
        """epoch << LEASE_BITS | count: unique even if the last leases given before a crash were not durable."""
        self.task = task
        self.serial = 0
        """Of the last queue created."""
        self.bytes = 0
        """Of bodies and attributes."""
        self.memory = 0
        """Memory of everything held, as counted by `lavant.broker.queues.accounting.memory`; includes jobs and
        subscriptions.
        """
        self.names = 0
        """De-duplication names remembered in all queues."""
        self.bodies = SharedBodies()
        self.usages = Usages()
        self.rules = RULES
        """The latest for a new machine; for one replayed from a journal, those named by its first `Open`."""

    @property
    def epoch(self) -> int:
        return self.lease >> LEASE_BITS

    def open(self, epoch: int, rules: int) -> None:
        self.lease = epoch << LEASE_BITS
        self.rules = rules
