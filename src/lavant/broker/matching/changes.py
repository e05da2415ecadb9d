"""The change log of a matcher, so that a copy can follow without a new snapshot."""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.matching.interface import Ids
from lavant.core.errors import InvalidValue

SUBSCRIPTIONS_MAX = 200_000
"""With more changed subscriptions than this, a snapshot is cheaper than a delta, and the oldest changes are dropped."""


class PackableFilters(Protocol):
    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...
    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays) -> Self: ...


FiltersT = TypeVar("FiltersT", bound=PackableFilters)


class MatcherChange(NamedTuple, Generic[FiltersT]):
    """An addition, or, without filters, a removal."""

    ids: Ids
    filters: FiltersT | None


class ChangeLog(Generic[FiltersT]):
    """The latest changes. Change number n leads from version n - 1 to version n."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._changes: deque[MatcherChange[FiltersT]] = deque()
        self._subscriptions = 0

    def append(self, version: int, change: MatcherChange[FiltersT]) -> None:
        self._changes.append(change)
        assert version == self._start + len(self._changes)
        self._subscriptions += len(change.ids)
        while self._changes and self._subscriptions > SUBSCRIPTIONS_MAX:
            self._subscriptions -= len(self._changes.popleft().ids)
            self._start += 1

    def pack(self, scheme: str, since: int) -> bytes:
        """The changes after version `since`, in bytes."""
        now = self._start + len(self._changes)
        if not self._start <= since <= now:
            raise InvalidValue(
                f"version {since} is not between {self._start} and {now}, which the change log holds; take a snapshot"
            )
        changes = list(self._changes)[since - self._start :]
        arrays: dict[str, NDArray[Any]] = {}
        metas: list[dict[str, Any] | None] = []
        for number, change in enumerate(changes):
            arrays[f"{number}.ids"] = change.ids
            if change.filters is None:
                metas.append(None)
                continue
            meta, columns = change.filters.to_arrays()
            metas.append(meta)
            arrays.update({f"{number}.{name}": column for name, column in columns.items()})
        return b"".join(container.pack({"scheme": scheme, "since": since, "changes": metas}, arrays))

    @staticmethod
    def unpack(scheme: str, delta: bytes, version: int, filters: type[FiltersT]) -> list[MatcherChange[FiltersT]]:
        """The changes that `pack` wrote, if they fit a matcher of this scheme and version."""
        meta, arrays = container.unpack(memoryview(delta), name="the delta")
        if meta.get("scheme") != scheme:
            raise InvalidValue(f"the delta is of scheme {meta.get('scheme')!r}, the matcher of {scheme!r}")
        if meta["since"] != version:
            raise InvalidValue(
                f"the delta starts at version {meta['since']}, the matcher is at {version}; ask for a delta since that"
            )
        changes: list[MatcherChange[FiltersT]] = []
        for number, filters_meta in enumerate(meta["changes"]):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            ids = own.pop("ids").astype(np.uint32)
            changes.append(MatcherChange(ids, None if filters_meta is None else filters.from_arrays(filters_meta, own)))
        return changes
