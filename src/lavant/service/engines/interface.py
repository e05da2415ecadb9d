"""What every engine can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from lavant.broker.subscriptions.accepting import Accepted
from lavant.broker.subscriptions.commands import EncryptedFilter
from lavant.broker.subscriptions.registry import Change
from lavant.broker.subscriptions.routing import Piece


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Publications of one namespace and scheme, in the order in which they were accepted."""

    namespace: str
    scheme: str
    publications: list[Accepted]


class Engine(Protocol):
    """Told of changes and given batches one after the other: never two calls at the same time."""

    def prepare(self, namespace: str, filter: str | EncryptedFilter) -> Any:
        """A filter as `change` takes it. Raises if it cannot be matched, or not together with those that are there."""
        ...

    def change(self, changes: Sequence[Change], prepared: Mapping[int, Any]) -> None:
        """Every batch that comes later is matched with these. Filters that were prepared are given by number."""
        ...

    def publish(self, batch: Batch) -> list[Piece] | None:
        """Which queues get what; None if that is told later, and the publications are durable now. May take long."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
