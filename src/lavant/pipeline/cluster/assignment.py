"""The assignment of slices to hosts, and of hosts to executors, for one batch."""

from __future__ import annotations

import msgspec

from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.core.identities import UNKNOWN, is_other

ANYWHERE = ""
ACCESS_SLICES = 4
"""At most so many access tasks read a batch."""
EXIT_SLICES = 8
"""At most so many exit tasks write a batch."""


class HostSlices(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of each operator on one host."""

    access: tuple[int, ...] = ()
    match: tuple[int, ...] = ()
    exit: tuple[int, ...] = ()
    location: str = ANYWHERE
    """Where the host's tasks run, as a Spark location; `ANYWHERE` leaves it to Spark."""


class SliceAssignment(msgspec.Struct, frozen=True):
    """Hosts by their number in a batch."""

    hosts: tuple[HostSlices, ...]
    store: str = UNKNOWN
    """Identity of the match slices' store."""

    @classmethod
    def even(cls, slices: int, hosts: int, *, access: int = ACCESS_SLICES, exit: int = EXIT_SLICES) -> SliceAssignment:
        """Slices assigned round-robin."""
        if hosts < 1:
            raise InvalidValue(f"there must be at least one host, got {hosts}")
        hosts = min(hosts, slices)
        exit = max(exit, hosts)
        return cls(
            tuple(
                HostSlices(
                    access=tuple(range(host, access, hosts)),
                    match=tuple(range(host, slices, hosts)),
                    exit=tuple(range(host, exit, hosts)),
                )
                for host in range(hosts)
            )
        )

    def check(self, slices: int, store: str) -> None:
        """Raise unless it is for this store, and each of its slices is matched once."""
        if is_other(self.store, store):
            raise IdentityMismatch(
                f"the placement is for the store with identity {self.store}, but these subscriptions have "
                f"{store}; start a manager for them, with a directory of its own"
            )
        if sorted(number for host in self.hosts for number in host.match) != list(range(slices)):
            raise IdentityMismatch(
                f"the placement does not fit a store of {slices} slices: {[host.match for host in self.hosts]}; "
                "start a manager for it, with a directory of its own"
            )

    def resliced(self, slices: int) -> SliceAssignment:
        """The same hosts for a store whose number of slices has changed, until the manager places the new ones."""
        hosts = [[number for number in host.match if number < slices] for host in self.hosts]
        known = {number for numbers in hosts for number in numbers}
        for number in range(slices):
            if number not in known:
                min(hosts, key=len).append(number)
        return msgspec.structs.replace(
            self,
            hosts=tuple(
                msgspec.structs.replace(host, match=tuple(numbers))
                for host, numbers in zip(self.hosts, hosts, strict=True)
            ),
        )

    @property
    def matching(self) -> list[tuple[int, HostSlices]]:
        """The hosts with match slices, by number."""
        return [(number, host) for number, host in enumerate(self.hosts) if host.match]

    @property
    def match_locations(self) -> list[str]:
        """Of each host with match slices."""
        return [host.location for _, host in self.matching]

    @property
    def exiting(self) -> list[tuple[int, HostSlices]]:
        return [(number, host) for number, host in enumerate(self.hosts) if host.exit]

    @property
    def access_locations(self) -> list[str]:
        """Of each access slice, by number."""
        locations = {number: host.location for host in self.hosts for number in host.access}
        return [locations.get(number, ANYWHERE) for number in range(max(locations, default=-1) + 1)]
