"""The interface of engines."""

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


class ChangeBatch(NamedTuple):
    """Subscriptions of one scope that are added or removed together, which is far cheaper than one by one."""

    scope: NamespaceScheme
    numbers: list[int]
    filters: Filters
    serials: list[int] | None
    """Numbers of their queues; None if they are removed."""
    is_counted: bool = True
    """Whether they count in the filter quota of their namespace: the plain filters of neighbouring brokers do not."""


class Logged(Protocol):
    """A batch that is durable in a publication log, and accepted once the journal has its end offset.

    One of the two methods is called, in the loop, before the next batch.
    """

    @property
    def log_name(self) -> str:
        """The name of the log."""
        ...

    @property
    def end(self) -> int:
        """The offset after its last publication."""
        ...

    def confirm(self) -> None:
        """The record of it is staged: it can be matched."""
        ...

    def withdraw(self) -> None:
        """It was refused: remove it."""
        ...


class Retired(NamedTuple):
    """A log without subscriptions and lag, which the engine has dropped."""

    log_name: str
    directory: Path
    """Its files, to be deleted before the next call of the engine."""


class Engine(Protocol):
    """Calls come one after the other, never two at the same time."""

    waits: bool
    """Whether `publish` waits for I/O; otherwise it only computes and may be called in the event loop."""

    scopes_max: int | None
    """The most scopes (namespace and scheme) that may have subscriptions; None for any number."""

    def change(self, batches: Sequence[ChangeBatch]) -> None:
        """Apply accepted changes; all later publications are matched with them."""
        ...

    def retire(self) -> list[Retired]:
        """Drop logs that are no longer needed, for removal from the journal. Quick, and called in the loop."""
        ...

    def check_room(self, namespace: str) -> None:
        """Raise `Overloaded` if too much waits to be matched. Called in the loop, before publications are admitted."""
        ...

    def publish(self, batch: EngineBatch) -> list[FanOutBatch] | Logged:
        """Match publications with queues, or store them durably to be matched later. May take long."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


class MatchProbe(Protocol):
    """Watches what an engine matches. Called in the loop."""

    async def pace(self, publications: int, started_s: float) -> None:
        """Wait, if a batch that was begun then must take longer."""
        ...

    def matched(self, publications: int, seconds: float) -> None:
        """A batch was matched."""
        ...

    def fanned_out(self, namespace: str, publications: Sequence[ParsedPublication], part: FanOutBatch) -> None:
        """The queues of some publications are known."""
        ...
