"""What is counted over all queues of a hub."""

from __future__ import annotations

import msgspec

from lavant.broker.queues.accounting.quotas import Usages
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.operations.shared_bodies import SharedBodies


class QueueTotals(msgspec.Struct, array_like=True, gc=False):
    """For the meaning of each see `QueueFigures`, which shows them."""

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
    """The last number, lease, task and serial that were given, and the bytes that are held. All others only grow.

    And the rules that hold for all queues, the bodies that several of them share, and what each namespace has.
    """

    __slots__ = ("bodies", "bytes", "lease", "memory", "names", "number", "rules", "serial", "task", "usages")

    def __init__(self, *, number: int = 0, lease: int = 0, task: int = 0) -> None:
        self.number = number
        self.lease = lease
        """epoch << LEASE_BITS | count: unique, even if a crash lets the hub forget the last ones that it gave."""
        self.task = task
        self.serial = 0
        """Of the last queue that was created."""
        self.bytes = 0
        """Of bodies and attributes."""
        self.memory = 0
        """What all that is held takes in memory, by `lavant.broker.queues.accounting.memory`; jobs and subscriptions
        included."""
        self.names = 0
        """Remembered for de-duplication, in all queues."""
        self.bodies = SharedBodies()
        self.usages = Usages()
        self.rules = RULES
        """A new hub has the latest; one that is made from a journal those that its first `Open` names."""

    @property
    def epoch(self) -> int:
        return self.lease >> LEASE_BITS

    def open(self, epoch: int, rules: int) -> None:
        self.lease = epoch << LEASE_BITS
        self.rules = rules
