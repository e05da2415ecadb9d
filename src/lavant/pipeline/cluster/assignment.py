"""The assignment of slices to hosts, and of hosts to executors."""

from __future__ import annotations

import msgspec

from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.core.identities import UNKNOWN, is_other

ANYWHERE = ""


class SliceAssignment(msgspec.Struct, frozen=True):
    """Hosts by their number in a batch."""

    hosts: tuple[tuple[int, ...], ...]
    """The slices of each."""
    locations: tuple[str, ...] = ()
    """Where each host's task runs, as a Spark location; `ANYWHERE`, or no entry, leaves it to Spark."""
    store: str = UNKNOWN
    """Identity of the slices' store."""

    @classmethod
    def even(cls, slices: int, hosts: int) -> SliceAssignment:
        """Slices assigned round-robin."""
        if hosts < 1:
            raise InvalidValue(f"there must be at least one host, got {hosts}")
        return cls(tuple(tuple(range(host, slices, hosts)) for host in range(min(hosts, slices))))

    def check(self, slices: int, store: str) -> None:
        """Raise unless it is for this store, and each of its slices is matched once."""
        if is_other(self.store, store):
            raise IdentityMismatch(
                f"the placement is for the store with identity {self.store}, but these subscriptions have "
                f"{store}; start a manager for them, with a directory of its own"
            )
        if sorted(number for numbers in self.hosts for number in numbers) != list(range(slices)):
            raise IdentityMismatch(
                f"the placement does not fit a store of {slices} slices: {self.hosts}; "
                "start a manager for it, with a directory of its own"
            )

    def location(self, host: int) -> str:
        return self.locations[host] if host < len(self.locations) else ANYWHERE
