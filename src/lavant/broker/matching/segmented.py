"""Base of the indexed matchers: immutable segments, merged as they grow.

An index is fast because it is sorted and packed, which makes changes costly. Additions therefore become a segment of
their own; once `TIER_WIDTH` segments of similar size exist, they are merged into one. Each subscription is rebuilt
about log(n) / log(TIER_WIDTH) times in its life, and a match visits a handful of segments. A removal marks the rows of
a subscription as dead; a segment with a quarter of its subscriptions removed is rebuilt.

    add ──► segment ─┐
    add ──► segment ─┼─ TIER_WIDTH of one tier ──► one segment of the next tier
    add ──► segment ─┘
    remove ──► dead rows ── a quarter of a segment ──► segment rebuilt

A match costs more with each segment that it visits. So when nothing changes for a while, all segments can be merged
into one in the background (`joining`).

The whole state is one immutable value, replaced by a single assignment: readers in other threads see the subscriptions
of one moment, and the single writer never waits for them.

A subclass supplies two things: filters by column (`Filters`) and a segment built from them (`Segment`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import container, snapshots
from lavant.broker.matching.changes import ChangeLog, MatcherChange
from lavant.broker.matching.interface import Ids, MatcherStatistics, Matches
from lavant.broker.matching.runs import Runs
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import DuplicateSubscription, InvalidValue, UnknownSubscription
from lavant.core.ids import SUBSCRIPTION_ID_MAX

TIER_WIDTH = 4
TIER_ROWS = 64
"""Segments of up to this many subscriptions form the lowest tier."""

Dead = NDArray[np.bool_]


class Filters(Protocol):
    """Filters by column; `len` is their number."""

    def __len__(self) -> int: ...
    def take(self, indices: NDArray[np.intp]) -> Self: ...
    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self: ...
    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...
    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays) -> Self: ...


class Search(Protocol):
    """Matches of one segment for a batch: first their number, then their ids."""

    counts: NDArray[np.int64]
    """Matches of each publication."""

    def fill(self, out: Ids, cursor: NDArray[np.int64]) -> None:
        """Write publication i's ids to `out` from `cursor[i]` on, and advance `cursor[i]` behind them."""

    def split(self) -> tuple[Runs, Search] | None:
        """Runs, and the matches that are in none; None if ids take less room."""


BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Segment(Protocol[BatchT_contra]):
    """An immutable index over some subscriptions, each with one or more rows."""

    @property
    def row_ids(self) -> Ids:
        """The subscription that each row belongs to."""

    def search(self, batch: BatchT_contra, dead: Dead | None) -> Search:
        """Find the rows that match; `dead` marks rows to leave out. A subscription counts once."""

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that `from_arrays` needs, without copying."""


FiltersT = TypeVar("FiltersT", bound=Filters)
BatchT = TypeVar("BatchT")


class Placed(NamedTuple, Generic[FiltersT, BatchT]):
    """A segment in use, with look-ups by subscription and the removals since it was built."""

    segment: Segment[BatchT]
    ids: Ids
    """Of the filters, ascending."""
    filters: FiltersT
    sorted_row_ids: Ids
    sorted_rows: NDArray[np.uint32]
    """Row of each entry of `sorted_row_ids`."""
    removed: Ids
    """Ascending."""
    dead: Dead | None

    @property
    def alive(self) -> int:
        return len(self.ids) - len(self.removed)

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these are here and not removed."""
        return _in_sorted(ids, self.ids) & ~_in_sorted(ids, self.removed)

    def without(self, ids: Ids) -> Self:
        """The same with these subscriptions, all of them here, marked as removed."""
        dead = np.zeros(len(self.sorted_rows), np.bool_) if self.dead is None else self.dead.copy()
        first = np.searchsorted(self.sorted_row_ids, ids, "left")
        last = np.searchsorted(self.sorted_row_ids, ids, "right")
        for offset in range(int((last - first).max(initial=0))):
            here = first + offset
            dead[self.sorted_rows[here[here < last]]] = True
        return self._replace(removed=np.union1d(self.removed, ids), dead=dead)

    def survivors(self) -> tuple[Ids, FiltersT]:
        if not len(self.removed):
            return self.ids, self.filters
        keep = np.flatnonzero(~_in_sorted(self.ids, self.removed))
        return self.ids[keep], self.filters.take(keep)


class SegmentedState(NamedTuple, Generic[FiltersT, BatchT]):
    """Everything a match reads."""

    version: int
    segments: tuple[Placed[FiltersT, BatchT], ...]


class SegmentedMatcher(ABC, Generic[FiltersT, BatchT]):
    """Adding, removing, merging, snapshots and deltas, independent of the kind of filters."""

    scheme: ClassVar[str]

    def __init__(self) -> None:
        self._state: SegmentedState[FiltersT, BatchT] = SegmentedState(0, ())
        self._changes: ChangeLog[FiltersT] = ChangeLog()

    # ---- supplied by subclasses --------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def _build(cls, ids: Ids, filters: FiltersT) -> Segment[BatchT]:
        """An index over the filters, whose ids ascend."""

    @classmethod
    @abstractmethod
    def _segment_from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays, filters: FiltersT) -> Segment[BatchT]:
        """The stored segment, on memory-mapped arrays, and the filters it was built from."""

    @classmethod
    @abstractmethod
    def _filters_type(cls) -> type[FiltersT]:
        pass

    @abstractmethod
    def _batch_length(self, batch: BatchT) -> int:
        """Number of publications."""

    def _check(self, filters: FiltersT) -> FiltersT:
        """Raise if filters do not fit the existing ones (of another dimension, say)."""
        return filters

    @classmethod
    def _fit(cls, parts: Sequence[FiltersT]) -> bool:
        """Whether these filters fit into one segment; others stay in several."""
        return True

    # ---- changing ---------------------------------------------------------------------------------------------------

    def add(self, ids: Sequence[int] | NDArray[Any], filters: FiltersT) -> None:
        """Subscribe the i-th id to the i-th filter. All or nothing; an existing id is an error."""
        ids = as_ids(ids)
        if len(ids) != len(filters):
            raise InvalidValue(f"got {len(ids)} ids for {len(filters)} filters; give each filter one id")
        if not len(ids):
            return
        filters = self._check(filters)
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise DuplicateSubscription(f"subscription {twice[0]} occurs twice among the additions")
        for placed in self._state.segments:
            taken = ordered[placed.holds(ordered)]
            if len(taken):
                raise DuplicateSubscription(f"subscription {taken[0]} exists already; remove it first")
        sorted_filters = filters if np.array_equal(ordered, ids) else filters.take(order)
        segments = [*self._state.segments, self._place(ordered, sorted_filters)]
        self._publish(MatcherChange(ids, filters), self._merge(segments))

    def remove(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Unsubscribe. All or nothing; an unknown id is an error."""
        ids = np.unique(as_ids(ids))
        if not len(ids):
            return
        segments: list[Placed[FiltersT, BatchT]] = []
        missing = np.ones(len(ids), np.bool_)
        for placed in self._state.segments:
            here = placed.holds(ids)
            missing &= ~here
            segments.append(placed.without(ids[here]) if here.any() else placed)
        if missing.any():
            raise UnknownSubscription(f"no subscription has id {ids[missing][0]}; nothing was removed")
        self._publish(MatcherChange(ids, None), self._merge(self._compact(segments)))

    def joining(self) -> Callable[[], None] | None:
        """Merge all segments into one; None if there is nothing to merge. Changes nothing and may run in any thread.

        The writer calls the function it returns: matches then visit the merged segment, unless something has changed
        since.
        """
        before = self._state
        groups = self._groups(before.segments)
        if len(groups) == len(before.segments):
            return None
        joined = [self._join(group) if len(group) > 1 else group[0] for group in groups]
        after = SegmentedState(before.version, tuple(joined))

        def take_effect() -> None:
            if self._state is before:
                self._state = after

        return take_effect

    @classmethod
    def union(cls, matchers: Sequence[Self]) -> Self:
        """One matcher for the subscriptions of several, which have no id in common; its segments are merged."""
        union = cls()
        union._state = SegmentedState(0, tuple(placed for matcher in matchers for placed in matcher._state.segments))
        if (merge := union.joining()) is not None:
            merge()
        return union

    def _publish(self, change: MatcherChange[FiltersT], segments: list[Placed[FiltersT, BatchT]]) -> None:
        version = self._state.version + 1
        self._changes.append(version, change)
        self._state = SegmentedState(version, tuple(segments))

    def _place(self, ids: Ids, filters: FiltersT) -> Placed[FiltersT, BatchT]:
        return self._placed(self._build(ids, filters), ids, filters)

    @staticmethod
    def _placed(segment: Segment[BatchT], ids: Ids, filters: FiltersT) -> Placed[FiltersT, BatchT]:
        rows = np.argsort(segment.row_ids, kind="stable").astype(np.uint32)
        return Placed(segment, ids, filters, segment.row_ids[rows], rows, np.empty(0, np.uint32), None)

    def _join(self, parts: Sequence[Placed[FiltersT, BatchT]]) -> Placed[FiltersT, BatchT]:
        survivors = [part.survivors() for part in parts]
        ids = np.concatenate([ids for ids, _ in survivors])
        order = np.argsort(ids, kind="stable")
        filters = self._filters_type().concatenate([filters for _, filters in survivors])
        return self._place(ids[order], filters.take(order))

    def _merge(self, segments: list[Placed[FiltersT, BatchT]]) -> list[Placed[FiltersT, BatchT]]:
        """Merge the segments of a tier as soon as it is full, the lowest first: a merge may fill the next."""
        while full := self._full_tier(segments):
            gone = {id(placed) for placed in full}
            segments = [*(placed for placed in segments if id(placed) not in gone), self._join(full)]
        return sorted(segments, key=lambda placed: -placed.alive)

    def _full_tier(self, segments: Sequence[Placed[FiltersT, BatchT]]) -> list[Placed[FiltersT, BatchT]]:
        """Segments of the lowest full tier that fit into one; empty if there is none."""
        tiers = [_tier(placed.alive) for placed in segments]
        for tier in sorted({tier for tier in tiers if tiers.count(tier) >= TIER_WIDTH}):
            same = [placed for placed, its_tier in zip(segments, tiers, strict=True) if its_tier == tier]
            for group in self._groups(same):
                if len(group) >= TIER_WIDTH:
                    return group
        return []

    def _groups(self, segments: Sequence[Placed[FiltersT, BatchT]]) -> list[list[Placed[FiltersT, BatchT]]]:
        """Groups that fit into one segment: all of them, unless their filters are too different."""
        if self._fit([placed.filters for placed in segments]):
            return [list(segments)] if segments else []
        groups: list[list[Placed[FiltersT, BatchT]]] = []
        for placed in segments:
            for group in groups:
                if self._fit([*(other.filters for other in group), placed.filters]):
                    group.append(placed)
                    break
            else:
                groups.append([placed])
        return groups

    def _compact(self, segments: list[Placed[FiltersT, BatchT]]) -> list[Placed[FiltersT, BatchT]]:
        worn = [s for s in segments if s.alive and len(s.removed) * 4 >= len(s.ids)]
        kept = [s for s in segments if len(s.removed) * 4 < len(s.ids)]
        return kept + [self._join([segment]) for segment in worn]

    # ---- reading ----------------------------------------------------------------------------------------------------

    def match(self, batch: BatchT) -> Matches:
        """The subscriptions that each publication of the batch matches."""
        return self._gather(batch, [placed.segment.search(batch, placed.dead) for placed in self._state.segments])

    def match_in_runs(
        self, batch: BatchT, segments: Sequence[Segment[BatchT]]
    ) -> tuple[list[tuple[int, Runs]], Matches]:
        """The same, with runs of rows for these segments, by their place in the list, where that is shorter.

        The process that expands the runs must have the same segments, such as those of the snapshot that was opened.
        """
        places = {id(segment): place for place, segment in enumerate(segments)}
        runs: list[tuple[int, Runs]] = []
        rest: list[Search] = []
        for placed in self._state.segments:
            search = placed.segment.search(batch, placed.dead)
            parts = search.split() if id(placed.segment) in places else None
            if parts is not None:
                runs.append((places[id(placed.segment)], parts[0]))
                search = parts[1]
            rest.append(search)
        return runs, self._gather(batch, rest)

    def _gather(self, batch: BatchT, searches: Sequence[Search]) -> Matches:
        offsets = np.zeros(self._batch_length(batch) + 1, np.int64)
        for search in searches:
            offsets[1:] += search.counts
        np.cumsum(offsets, out=offsets)
        ids = np.empty(offsets[-1], np.uint32)
        cursor = offsets[:-1].copy()
        for search in searches:
            search.fill(ids, cursor)
        return Matches(offsets, ids)

    @property
    def segments(self) -> list[Segment[BatchT]]:
        """The present segments; those of a snapshot after `open`, in its order."""
        return [placed.segment for placed in self._state.segments]

    def __len__(self) -> int:
        return sum(placed.alive for placed in self._state.segments)

    def __contains__(self, id: int) -> bool:
        return bool(self.holds(as_ids(np.array([id])))[0])

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these are subscribed."""
        held = np.zeros(len(ids), np.bool_)
        for placed in self._state.segments:
            held |= placed.holds(ids)
        return held

    @property
    def version(self) -> int:
        """Counts the calls that changed something."""
        return self._state.version

    def statistics(self) -> MatcherStatistics:
        segments = self._state.segments
        return MatcherStatistics(
            subscriptions=sum(placed.alive for placed in segments),
            segments=len(segments),
            removed=sum(len(placed.removed) for placed in segments),
            memory_bytes=sum(_memory_bytes(placed) for placed in segments),
            version=self._state.version,
        )

    # ---- snapshots and deltas ----------------------------------------------------------------------------------------

    def snapshot(self, place: Path | ObjectStorage) -> int:
        """Write everything there, skipping files that exist; return the version written."""
        state = self._state
        snapshots.write(place, scheme=self.scheme, version=state.version, parts=_parts(state))
        return state.version

    @classmethod
    def open(cls, place: Path | ObjectStorage) -> Self:
        """A matcher on a snapshot's memory-mapped arrays: nothing is read before it is needed."""
        return cls._of(*snapshots.read(place, scheme=cls.scheme))

    @classmethod
    def renumbered(cls, version: int, parts: Sequence[tuple[Ids, FiltersT]]) -> Self:
        """A matcher with these subscriptions that starts at a version."""
        matcher = cls()
        if len(parts) > 1 and cls._fit([filters for _, filters in parts]):
            ids = np.concatenate([ids for ids, _ in parts])
            parts = [(ids, cls._filters_type().concatenate([filters for _, filters in parts]))]
        for ids, filters in parts:
            matcher.add(ids, filters)
        matcher._state = matcher._state._replace(version=version)
        matcher._changes = ChangeLog(version)
        return matcher

    def subscriptions(self) -> list[tuple[Ids, FiltersT]]:
        """All of them, in one or more parts."""
        return [placed.survivors() for placed in self._state.segments if placed.alive]

    def to_bytes(self) -> bytes:
        """The whole matcher with its indexes, ready for use elsewhere."""
        return snapshots.pack(scheme=self.scheme, version=self._state.version, parts=_parts(self._state))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """A matcher on the arrays in `data`, which are not copied."""
        return cls._of(*snapshots.unpack(data, scheme=cls.scheme))

    @classmethod
    def _of(cls, version: int, parts: Sequence[snapshots.SnapshotPart]) -> Self:
        matcher = cls()
        segments: list[Placed[FiltersT, BatchT]] = []
        for part in parts:
            filters = cls._filters_type().from_arrays(part.meta["filters"], _below("filters.", part.arrays))
            segment = cls._segment_from_arrays(part.meta["index"], _below("index.", part.arrays), filters)
            dead = part.state["dead"]
            segments.append(
                Placed(
                    segment,
                    part.arrays["ids"],
                    filters,
                    part.arrays["sorted_row_ids"],
                    part.arrays["sorted_rows"],
                    part.state["removed"],
                    dead if len(dead) else None,
                )
            )
        matcher._state = SegmentedState(version, tuple(segments))
        matcher._changes = ChangeLog(start=version)
        return matcher

    def delta(self, since: int) -> bytes:
        """Changes after version `since`, for `apply` on a matcher of that version."""
        return self._changes.pack(self.scheme, since)

    def apply(self, delta: bytes) -> None:
        """Bring a matcher from the delta's first version to its last."""
        for change in ChangeLog.unpack(self.scheme, delta, self._state.version, self._filters_type()):
            if change.filters is None:
                self.remove(change.ids)
            else:
                self.add(change.ids, change.filters)


def _parts(state: SegmentedState[Any, Any]) -> list[snapshots.SnapshotPart]:
    parts = []
    for placed in state.segments:
        index_meta, index = placed.segment.to_arrays()
        filters_meta, filters = placed.filters.to_arrays()
        arrays = {
            **{f"index.{name}": array for name, array in index.items()},
            **{f"filters.{name}": array for name, array in filters.items()},
            **{"ids": placed.ids, "sorted_row_ids": placed.sorted_row_ids, "sorted_rows": placed.sorted_rows},
        }
        removals = {"removed": placed.removed, "dead": _or_empty(placed.dead)}
        parts.append(snapshots.SnapshotPart({"index": index_meta, "filters": filters_meta}, arrays, removals))
    return parts


def as_ids(ids: Sequence[int] | NDArray[Any]) -> Ids:
    """Subscription ids as an array; raises an error that names an invalid one."""
    array = np.asarray(ids)
    if array.dtype == np.uint32 and array.ndim == 1:
        return array.copy()  # the change log keeps it, and the caller may modify its own
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InvalidValue(f"subscription ids must be a flat array of integers, got {array.dtype} of {array.ndim} axes")
    for extreme in (array.min(initial=0), array.max(initial=0)):
        if not 0 <= extreme <= SUBSCRIPTION_ID_MAX:
            raise InvalidValue(f"a subscription id lies between 0 and {SUBSCRIPTION_ID_MAX}, got {extreme}")
    return array.astype(np.uint32)


def _tier(subscriptions: int) -> int:
    tier = 0
    while subscriptions > TIER_ROWS:
        subscriptions //= TIER_WIDTH
        tier += 1
    return tier


def _in_sorted(values: Ids, ascending: Ids) -> NDArray[np.bool_]:
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.equal(ascending[place], values)


def _below(prefix: str, arrays: container.Arrays) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _or_empty(dead: Dead | None) -> Dead:
    return np.empty(0, np.bool_) if dead is None else dead


def _memory_bytes(placed: Placed[Any, Any]) -> int:
    index = placed.segment.to_arrays()[1].values()
    filters = placed.filters.to_arrays()[1].values()
    own = (placed.ids, placed.sorted_row_ids, placed.sorted_rows, placed.removed, _or_empty(placed.dead))
    return sum(array.nbytes for arrays in (index, filters, own) for array in arrays)
