"""What is counted over all queues of a hub."""

from __future__ import annotations

LEASE_BITS = 40
EPOCH_MAX = (1 << 24) - 1
"""An epoch and a count of leases fit into 64 bits."""


class Counters:
    """The last number, lease, task and serial that were given, and the bytes that are held. All others only grow."""

    __slots__ = ("bytes", "lease", "number", "serial", "task")

    def __init__(self, *, number: int = 0, lease: int = 0, task: int = 0) -> None:
        self.number = number
        self.lease = lease
        """epoch << LEASE_BITS | count: unique, even if a crash lets the hub forget the last ones that it gave."""
        self.task = task
        self.serial = 0
        """Of the last queue that was created."""
        self.bytes = 0
        """Of bodies and attributes."""

    @property
    def epoch(self) -> int:
        return self.lease >> LEASE_BITS

    def open(self, epoch: int) -> None:
        self.lease = epoch << LEASE_BITS
