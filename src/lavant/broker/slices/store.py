"""The slice store: subscriptions on disk in slices, with versions. One process writes, many read.

    store/
      store.json                       identity, scheme and number of slices, which never change
      head.json                        the latest version, and for it and some before: each slice's version
      slice-0003/base-0000000012/      a snapshot of slice 3 at its version 12
      slice-0003/delta-0000000012      the change from 12 to the next version …

A change writes the deltas of the slices it affects, then atomically replaces the head: a version exists with all its
slices or not at all. Subscription i is in slice `slice_of(i)` (e-StreamHub, section III: "modulo hashing on
subscription identifiers").
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import MATCHERS
from lavant.broker.matching.interface import Ids
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.matching.plain.table import FilterTable
from lavant.broker.matching.segmented import as_ids
from lavant.broker.slices.reader import (
    SliceReader,
    StoreHead,
    StoreSettings,
    StoreVersion,
    base_path,
    delta_path,
    slice_path,
)
from lavant.core.errors import InvalidValue
from lavant.core.files import local_path, replace_file
from lavant.core.identities import new_identity

HISTORY = 64
"""Versions kept for readers: more than a stream may lag behind."""
DELTAS_MAX = 32
"""A slice with more deltas than this gets a new snapshot."""
DELTA_BYTES_MIN, DELTA_BYTES_MAX = 64 << 10, 1 << 20
DELTA_SHARE = 8
"""A delta is at most so small a part of its slice: a reader indexes it by itself, and maps a snapshot as it is."""
SLICES_MAX = 4096
SCHEMES = ("plain", "encrypted")


def slice_of(ids: Ids, slices: int) -> NDArray[np.int64]:
    """The slice of each subscription: a hash, which spreads adjacent ids evenly, modulo the number of slices."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(slices)).astype(np.int64)


class SliceStore:
    """The writer: holds all slices open and changes them."""

    def __init__(self, directory: Path, settings: StoreSettings, head: StoreHead, matchers: list[Any]) -> None:
        self.directory = directory
        self.settings = settings
        self._head = head
        self._matchers = matchers
        self._is_of_old = False
        """A store from before identities: the one that readers derive is written with the first change."""

    @classmethod
    def create(cls, directory: Path, *, scheme: str = "plain", slices: int = 16) -> SliceStore:
        """Create an empty store."""
        directory = local_path(directory)
        if scheme not in SCHEMES:
            raise InvalidValue(f"scheme {scheme!r} is none of {', '.join(SCHEMES)}")
        if not 1 <= slices <= SLICES_MAX:
            raise InvalidValue(f"a store has between 1 and {SLICES_MAX} slices, got {slices}")
        if (directory / "store.json").exists():
            raise InvalidValue(f"{directory} holds a store already; open it, or choose another directory")
        settings = StoreSettings(scheme, slices, identity=new_identity())
        matchers = [MATCHERS[scheme]() for _ in range(slices)]
        directory.mkdir(parents=True, exist_ok=True)
        for number, matcher in enumerate(matchers):
            matcher.snapshot(base_path(directory, number, 0))
        store = cls(directory, settings, StoreHead(()), matchers)
        store._publish_head(StoreVersion(0, (0,) * slices, (0,) * slices))
        store._keep_settings()
        return store

    @classmethod
    def open(cls, directory: Path) -> SliceStore:
        reader = SliceReader(directory)
        head = reader.head()
        version = head.versions[-1]
        matchers = [reader.matcher(number, version) for number in range(reader.settings.slices)]
        store = cls(reader.directory, reader.settings, head, matchers)
        store._is_of_old = reader.is_of_old
        return store

    @property
    def version(self) -> int:
        return self._head.versions[-1].number

    def __len__(self) -> int:
        return sum(len(matcher) for matcher in self._matchers)

    def check(self, filters: Any) -> None:
        """Raise unless these filters can be matched together with the existing ones."""
        for matcher in self._matchers:
            if len(matcher):  # filters that do not fit a filled slice must not go into an empty one either
                matcher._check(filters)
                break

    def add(self, ids: Sequence[int] | NDArray[Any], filters: Any) -> int:
        """Subscribe, all or nothing, and return the version that includes it."""
        taken = as_ids(ids)
        if self.settings.scheme == "plain" and not isinstance(filters, FilterTable):
            filters = encode_filters(filters)
        if len(taken) != len(filters):
            raise InvalidValue(f"got {len(taken)} ids for {len(filters)} filters; give each filter one id")
        self.check(filters)
        parts = self._parts(taken)
        done: list[int] = []
        try:
            for number, chosen in parts:
                self._matchers[number].add(taken[chosen], filters.take(chosen))
                done.append(number)
        except BaseException:
            self._reopen(done)
            raise
        return self._commit(done)

    def remove(self, ids: Sequence[int] | NDArray[Any]) -> int:
        """Unsubscribe, all or nothing, and return the version that includes it."""
        gone = np.unique(as_ids(ids))
        parts = self._parts(gone)
        done: list[int] = []
        try:
            for number, chosen in parts:
                self._matchers[number].remove(gone[chosen])
                done.append(number)
        except BaseException:
            self._reopen(done)
            raise
        return self._commit(done)

    def _parts(self, ids: Ids) -> list[tuple[int, NDArray[np.intp]]]:
        slices = slice_of(ids, self.settings.slices)
        return [(int(number), np.flatnonzero(slices == number)) for number in np.unique(slices)]

    def _reopen(self, changed: list[int]) -> None:
        """Drop failed changes: the state on disk holds."""
        reader = SliceReader(self.directory)
        self._head = reader.head()
        for number in changed:
            self._matchers[number] = reader.matcher(number, self._head.versions[-1])

    def _commit(self, changed: list[int]) -> int:
        if not changed:
            return self.version
        try:
            version = self._next_version(changed)
            if self._is_of_old:
                self._keep_settings()
            self._publish_head(version)
        except BaseException:
            self._reopen(changed)
            raise
        self._delete_what_no_version_needs(changed)
        return version.number

    def _next_version(self, changed: list[int]) -> StoreVersion:
        """Write its files. Files of a failed change are overwritten: no published version needs them."""
        latest = self._head.versions[-1]
        versions, bases = list(latest.slices), list(latest.bases)
        for number in changed:
            matcher = self._matchers[number]
            before = versions[number]
            versions[number] = matcher.version
            delta = _small_delta(matcher, before)
            if delta is None or before - bases[number] >= DELTAS_MAX:
                matcher.snapshot(base_path(self.directory, number, matcher.version))
                bases[number] = matcher.version
            else:
                _replace(delta_path(self.directory, number, before), delta)
        return StoreVersion(latest.number + 1, tuple(versions), tuple(bases), len(self))

    def _keep_settings(self) -> None:
        _replace(self.directory / "store.json", msgspec.json.encode(self.settings))
        self._is_of_old = False

    def _publish_head(self, version: StoreVersion) -> None:
        head = StoreHead((*self._head.versions, version)[-HISTORY:])
        _replace(self.directory / "head.json", msgspec.json.encode(head))
        self._head = head

    def _delete_what_no_version_needs(self, changed: list[int]) -> None:
        for number in changed:
            oldest = min(version.bases[number] for version in self._head.versions)
            for path in slice_path(self.directory, number).iterdir():
                kind, _, text = path.name.partition("-")
                is_left_over = path.suffix == ".partial"  # by a change that failed
                if is_left_over or (kind == "delta" and int(text) < oldest):
                    path.unlink()
                elif kind == "base" and int(text) < oldest:
                    for file in path.iterdir():
                        file.unlink()
                    path.rmdir()


def _small_delta(matcher: Any, before: int) -> bytes | None:
    """The change since a version, unless a new snapshot costs a reader less than applying it."""
    try:
        delta: bytes = matcher.delta(since=before)
    except InvalidValue:  # more than the change log keeps
        return None
    share = matcher.statistics().memory_bytes // DELTA_SHARE
    return delta if len(delta) <= min(max(DELTA_BYTES_MIN, share), DELTA_BYTES_MAX) else None


def _replace(path: Path, content: bytes) -> None:
    replace_file(path, [content])
