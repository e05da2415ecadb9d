"""What the manager needs of whatever starts and stops consumers."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Staff(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers of a topic."""

    wanted: int
    running: int
    """Ready, or about to be."""
    leaving: int = 0
    """Finishing what they have begun."""
    died: int = 0
    """Since the start, without being told to; each was replaced."""
    fault: str = ""
    """Why there cannot be as many as are wanted, if that is so."""


class ConsumerAllocator(Protocol):
    """The paper's resource allocator. Consumers that go finish what they have begun; those that die are replaced."""

    name: str

    async def start(self) -> None:
        """Raises if it can never have consumers: a module that cannot be loaded, a cluster that does not answer."""
        ...

    async def scale(self, topic: str, consumers: int) -> None:
        """From now on the topic has so many. Returns when that is under way, not when it is done."""
        ...

    def staff(self) -> dict[str, Staff]:
        """Of each topic, as far as known."""
        ...

    async def stop(self) -> None:
        """All consumers go; none is left when this returns, unless they live on by themselves elsewhere."""
        ...
