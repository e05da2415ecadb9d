"""What is counted over all queues of a hub."""

from __future__ import annotations

from lavant.broker.queues.rules import RULES

LEASE_BITS = 40
EPOCH_MAX = (1 << 24) - 1
"""An epoch and a count of leases fit into 64 bits."""


class Counters:
    """The last number, lease, task and serial that were given, and the bytes that are held. All others only grow.

    And the rules that hold for all queues.
    """

    __slots__ = ("bytes", "lease", "number", "rules", "serial", "task")

    def __init__(self, *, number: int = 0, lease: int = 0, task: int = 0) -> None:
        self.number = number
        self.lease = lease
        """epoch << LEASE_BITS | count: unique, even if a crash lets the hub forget the last ones that it gave."""
        self.task = task
        self.serial = 0
        """Of the last queue that was created."""
        self.bytes = 0
        """Of bodies and attributes."""
        self.rules = RULES
        """A new hub has the latest; one that is made from a journal those that its first `Open` names."""

    @property
    def epoch(self) -> int:
        return self.lease >> LEASE_BITS

    def open(self, epoch: int, rules: int) -> None:
        self.lease = epoch << LEASE_BITS
        self.rules = rules
