"""The interface of all matchers, independent of the kind of filters.

A matcher holds subscriptions and returns, for a batch of publications, those that each one matches. The state that a
match reads is immutable and replaced as a whole, so `match` may run in several threads while another adds and removes:
each call sees the subscriptions of one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.storage.objects import ObjectStorage

Ids = NDArray[np.uint32]
Offsets = NDArray[np.int64]

FiltersT_contra = TypeVar("FiltersT_contra", contravariant=True)
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Matches(NamedTuple):
    """Publication i matches `ids[offsets[i]:offsets[i + 1]]`, in unspecified order, each id once."""

    offsets: Offsets
    ids: Ids

    def of(self, publication: int) -> Ids:
        """The ids that the given publication of the batch matches."""
        return self.ids[self.offsets[publication] : self.offsets[publication + 1]]

    def sorted(self) -> Matches:
        """The same with the ids of each publication in ascending order, to compare or to show."""
        publication = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return Matches(self.offsets, self.ids[np.lexsort((self.ids, publication))])


class MatcherStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a matcher. `memory_bytes` counts all of its arrays, including memory-mapped ones."""

    subscriptions: int
    segments: int
    removed: int
    memory_bytes: int
    version: int


class Matcher(Protocol[FiltersT_contra, BatchT_contra]):
    """Add many, remove many, match a batch; write to disk and continue from there."""

    def add(self, ids: Sequence[int] | NDArray[Any], filters: FiltersT_contra) -> None:
        """Subscribe the i-th id to the i-th filter. All or nothing; an existing id is an error."""

    def remove(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Unsubscribe. All or nothing; an unknown id is an error."""

    def match(self, batch: BatchT_contra) -> Matches:
        """The subscriptions that each publication of the batch matches."""

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these are subscribed."""

    def statistics(self) -> MatcherStatistics:
        pass

    def snapshot(self, place: Path | ObjectStorage) -> int:
        """Write everything there, skipping files that exist; return the version written."""

    @classmethod
    def open(cls, place: Path | ObjectStorage) -> Self:
        """A matcher on a snapshot's memory-mapped arrays: nothing is read before it is needed."""

    def to_bytes(self) -> bytes:
        """The whole matcher, for `from_bytes` elsewhere."""

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """The matcher that was packed; it may keep using `data`."""

    def delta(self, since: int) -> bytes:
        """Changes after version `since`, for `apply` on a matcher of that version."""

    def apply(self, delta: bytes) -> None:
        """Bring a matcher from the delta's first version to its last."""
