"""The interface of consumer allocators, which start and stop consumers for the resource manager."""

from __future__ import annotations

from typing import Protocol

import msgspec


class ConsumerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers of a topic."""

    wanted: int
    running: int
    """Ready, or about to be."""
    leaving: int = 0
    """Draining: they finish the tasks they have begun."""
    died: int = 0
    """Consumers that ended by themselves since the start; each was replaced."""
    fault: str = ""
    """Why there cannot be as many as wanted; empty if there can."""


class ConsumerAllocator(Protocol):
    """The paper's resource allocator. Consumers that are stopped finish their tasks; those that die are replaced."""

    name: str

    async def start(self) -> None:
        """Raises if consumers can never run: a module cannot be loaded, a cluster does not answer."""
        ...

    async def scale(self, topic: str, consumers: int) -> None:
        """Set the number of consumers of a topic. Returns when the change has begun, not when it is done."""
        ...

    def counts(self) -> dict[str, ConsumerCounts]:
        """By topic, as far as known."""
        ...

    async def stop(self) -> None:
        """Stop all consumers and wait for them; those of a cluster go on by themselves."""
        ...
