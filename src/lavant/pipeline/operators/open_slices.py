"""The slices that this Python worker has open, from batch to batch.

A slice is opened from its snapshot and brought forward by deltas. When the store has a newer snapshot, the slice is
opened anew, so that runs always refer to the snapshot of the batch's version.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from lavant.broker.matching.interface import Ids
from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import SliceFile, StoreVersion
from lavant.broker.storage.objects import ObjectStorage
from lavant.pipeline.operators.exchange import SegmentKey

SLICES_OPEN_MAX = 256
"""Beyond this the least recently used slice is closed; the system may keep its mapped pages anyway."""


class SlicePlace(msgspec.Struct, frozen=True):
    """A store as a task knows it."""

    storage: str
    identity: str
    scheme: str


class OpenSlice(NamedTuple):
    base: SliceFile
    """The snapshot."""
    matcher: Any
    segments: list[Any]
    """Those of the snapshot."""
    memory_bytes: int


_travelled: dict[str, ObjectStorage] = {}
"""Storage that came with tasks, by address."""
_slices: OrderedDict[tuple[str, str, int], OpenSlice] = OrderedDict()
_bases: OrderedDict[tuple[str, str, SliceFile], list[Ids]] = OrderedDict()


def open_slice(place: SlicePlace, number: int, version: StoreVersion) -> OpenSlice:
    """A slice at a version: that of the last batch, brought forward, if it has the same snapshot."""
    key = (place.storage, place.identity, number)
    known = _slices.pop(key, None)
    base = version.base(number)
    reader = _reader(place)
    if known is None or known.base != base or known.matcher.version > version.slices[number]:
        matcher = reader.matcher(number, _at_base(version))
        known = OpenSlice(base, matcher, matcher.segments, matcher.statistics().memory_bytes)
    reader.matcher(number, version, known.matcher)
    _keep(_slices, key, known)
    return known


def row_ids(place: SlicePlace, key: SegmentKey, version: StoreVersion) -> Ids:
    """The subscriptions of a segment's rows, to expand runs."""
    base = version.base(key.slice)
    known = _slices.get((place.storage, place.identity, key.slice))
    if known is not None and known.base == base:
        ids: Ids = known.segments[key.place].row_ids
        return ids
    at = (place.storage, place.identity, base)
    segments = _bases.pop(at, None)
    if segments is None:
        snapshot = _reader(place).matcher(key.slice, _at_base(version))
        segments = [segment.row_ids for segment in snapshot.segments]
    _keep(_bases, at, segments)
    return segments[key.place]


def no_runs(key: SegmentKey) -> Ids:
    """For results that have none."""
    raise AssertionError(f"a run of {key} among results without runs")


def set_travelled(address: str, storage: ObjectStorage) -> None:
    """Use a storage that came with a task, instead of opening the address."""
    _travelled[address] = storage
    _reader.cache_clear()


def _at_base(version: StoreVersion) -> StoreVersion:
    """The snapshots that a version builds on, without its deltas."""
    return msgspec.structs.replace(version, slices=version.bases)


def _keep(cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    cache[key] = value
    if len(cache) > SLICES_OPEN_MAX:
        cache.popitem(last=False)


@lru_cache(maxsize=64)
def _reader(place: SlicePlace) -> SliceReader:
    return SliceReader(_travelled.get(place.storage, place.storage), place.identity)
