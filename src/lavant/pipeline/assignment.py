"""Which slices each host matches, and which executor is that host."""

from __future__ import annotations

import msgspec

from lavant.core.errors import InvalidValue

ANYWHERE = ""


class Assignment(msgspec.Struct, frozen=True):
    """Hosts by their number in a batch."""

    hosts: tuple[tuple[int, ...], ...]
    """The slices of each."""
    locations: tuple[str, ...] = ()
    """Where each one's task runs, as Spark names places; `ANYWHERE`, or no entry, leaves it to Spark."""

    @classmethod
    def even(cls, slices: int, hosts: int) -> Assignment:
        """Slices dealt out in turn."""
        if hosts < 1:
            raise InvalidValue(f"there must be at least one host, got {hosts}")
        return cls(tuple(tuple(range(host, slices, hosts)) for host in range(min(hosts, slices))))

    def location(self, host: int) -> str:
        return self.locations[host] if host < len(self.locations) else ANYWHERE
