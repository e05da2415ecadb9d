"""What every engine can do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from lavant.broker.subscriptions.filter_quota import Filters, NamespaceScheme
from lavant.broker.subscriptions.parsing import ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch


class EngineBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Publications of one namespace and scheme, in the order in which they were accepted."""

    namespace: str
    scheme: str
    publications: list[ParsedPublication]


class Step(NamedTuple):
    """Subscriptions that come to a lane, or leave it, together: one by one would cost far more."""

    lane: NamespaceScheme
    numbers: list[int]
    filters: Filters
    serials: list[int] | None
    """Of the queues that they go to; none if they leave."""


class Logged(Protocol):
    """A batch that is durable in the log of a lane, and counts when the broker's journal says how far that log counts.

    One of the two is called, in the loop, before the next batch.
    """

    @property
    def lane(self) -> str: ...

    @property
    def end(self) -> int:
        """The offset behind the last of its publications."""
        ...

    def confirm(self) -> None:
        """The journal is going to have it: it can be matched."""
        ...

    def withdraw(self) -> None:
        """It was refused, and is as if it had never come."""
        ...


class Retired(NamedTuple):
    """A lane without subscriptions, of whose log nothing is owed: the engine knows it no more."""

    lane: str
    directory: Path
    """What is left of it on disk, to be deleted before the engine is told of anything else."""


class Engine(Protocol):
    """Told of changes and given batches one after the other: never two calls at the same time."""

    waits: bool
    """Whether `publish` waits for a disk or the like; else it only computes, and may be called in the event loop."""

    lanes_max: int | None
    """How many namespaces and schemes may have subscriptions; any number without."""

    def change(self, steps: Sequence[Step]) -> None:
        """Every batch that comes later is matched with these. Whatever was accepted is taken."""
        ...

    def retire(self) -> list[Retired]:
        """Let go of lanes that nobody needs any more. Quick, and called in the loop; the journal is to forget them."""
        ...

    def check_room(self, namespace: str) -> None:
        """Raise `Overloaded` if too much waits to be matched. Called in the loop, before publications are taken."""
        ...

    def publish(self, batch: EngineBatch) -> list[FanOutBatch] | Logged:
        """Which queues get what; or that this is told later, and the publications are durable now. May take long."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
