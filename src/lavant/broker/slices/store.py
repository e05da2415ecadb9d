"""The slice store: subscriptions in slices, with versions, in a directory or at a URI. One process writes, many read.

    store/
      store.json                       identity, scheme and the first number of slices, which never change
      head.json                        the latest version, and for it and some before: each slice's version
      slice-0003/base-0000000012/      a snapshot of slice 3 at its version 12
      slice-0003/delta-0000000012      the change from 12 to the next version …

A change writes the deltas of the slices it affects, then atomically replaces the head: a version exists with all its
slices or not at all. Subscription i is in slice `slice_of(i)` (e-StreamHub, section III: "modulo hashing on
subscription identifiers").

Re-slicing is a change that writes new snapshots of all slices. Their versions begin beyond all those of the slices
before, so that files of two layouts never have the same name.

At a URI nothing is replaced, because two writers must not destroy each other's files:

      head-IDENTITY-0000000031.json    the head at version 31; whoever creates it has made that version
      writers/0000000002               the number of a writer, taken by creating the object
      slice-0003/base-0000000012-2/    a snapshot that writer 2 wrote
      slice-0003/delta-0000000012-2    a change on top of it …

A writer begins with a new snapshot of each slice that it changes. One that finds its version made by another has
changed nothing, and continues from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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
    HEAD,
    SETTINGS,
    SliceFile,
    SliceReader,
    StoreHead,
    StoreSettings,
    StoreVersion,
    head_name,
    head_prefix,
    local_directory,
    slice_name,
)
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import InvalidValue, StorageLocked
from lavant.core.identities import new_identity

HEADS_MAX = 16
"""Heads of earlier versions kept at a URI, for readers that have listed them."""
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

    def __init__(self, storage: ObjectStorage, settings: StoreSettings, head: StoreHead, matchers: list[Any]) -> None:
        self.storage = storage
        self.settings = settings
        self._head = head
        self._matchers = matchers
        self._is_local = storage.path(SETTINGS) is not None
        self._writer: int | None = None
        """At a URI: the number of this writer, taken with its first change."""
        self._outdated: set[int] = set()
        """Slices with files that no version needs any more."""
        self._is_of_old = False
        """A store from before identities: the one that readers derive is written with the first change."""

    @classmethod
    def create(cls, place: str | Path | ObjectStorage, *, scheme: str = "plain", slices: int = 16) -> SliceStore:
        """Create an empty store."""
        storage = open_storage(place)
        if scheme not in SCHEMES:
            raise InvalidValue(f"scheme {scheme!r} is none of {', '.join(SCHEMES)}")
        _check_slices(slices)
        if storage.size(SETTINGS) is not None:
            raise InvalidValue(f"{storage.uri} holds a store already; open it, or choose another place")
        settings = StoreSettings(scheme, slices, identity=new_identity())
        store = cls(storage, settings, StoreHead(()), [MATCHERS[scheme]() for _ in range(slices)])
        store._publish_head(store._snapshots(0))
        store._create_settings()
        return store

    @classmethod
    def open(cls, place: str | Path | ObjectStorage) -> SliceStore:
        reader = SliceReader(place)
        head = reader.head()
        version = head.versions[-1]
        matchers = [reader.matcher(number, version) for number in range(len(version.slices))]
        store = cls(reader.storage, reader.settings, head, matchers)
        store._is_of_old = reader.is_of_old
        return store

    @property
    def directory(self) -> Path:
        return local_directory(self.storage)

    @property
    def version(self) -> int:
        return self._head.versions[-1].number

    @property
    def slices(self) -> int:
        """The number of slices of the latest version."""
        return len(self._matchers)

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

    def reslice(self, slices: int) -> int:
        """Divide the subscriptions among another number of slices, and return the version that has it.

        Readers of older versions find their slices until those versions are no longer kept.
        """
        _check_slices(slices)
        if slices == self.slices:
            return self.version
        before = self._matchers
        beyond = max(self._head.versions[-1].slices) + 1
        try:
            self._matchers = _divided(before, MATCHERS[self.settings.scheme], slices, beyond)
            version = self._snapshots(self.version + 1)
            self._publish(version)
        except BaseException:
            self._reopen(range(max(slices, len(before))))
            raise
        self._delete_what_no_version_needs(range(slices))
        return version.number

    def _parts(self, ids: Ids) -> list[tuple[int, NDArray[np.intp]]]:
        slices = slice_of(ids, self.slices)
        return [(int(number), np.flatnonzero(slices == number)) for number in np.unique(slices)]

    def _reopen(self, changed: Sequence[int]) -> None:
        """Drop failed changes: what the storage holds is true, by whomever."""
        reader = SliceReader(self.storage)
        self._head = reader.head()
        latest = self._head.versions[-1]
        known = {number: matcher for number, matcher in enumerate(self._matchers) if number not in changed}
        self._matchers = [reader.matcher(number, latest, known.get(number)) for number in range(len(latest.slices))]

    def _commit(self, changed: list[int]) -> int:
        if not changed:
            return self.version
        try:
            version = self._next_version(changed)
            self._publish(version)
        except BaseException:
            self._reopen(changed)
            raise
        self._delete_what_no_version_needs(changed)
        return version.number

    def _publish(self, version: StoreVersion) -> None:
        if self._is_of_old:
            _write(self.storage, SETTINGS, msgspec.json.encode(self.settings))
            self._is_of_old = False
        self._publish_head(version)

    def _next_version(self, changed: list[int]) -> StoreVersion:
        """Write its files. Files of a failed change are overwritten: no published version needs them."""
        latest = self._head.versions[-1]
        bases = [latest.base(number) for number in range(len(latest.slices))]
        versions = list(latest.slices)
        for number in changed:
            matcher, base, before = self._matchers[number], bases[number], versions[number]
            writer = self._number_of_writer(base.writer)
            versions[number] = matcher.version
            delta = _small_delta(matcher, before) if writer == base.writer else None
            if delta is None or before - base.version >= DELTAS_MAX:
                bases[number] = SliceFile(number, matcher.version, writer)
                matcher.snapshot(self.storage.below(bases[number].base_name))
            else:
                _write(self.storage, base._replace(version=before).delta_name, delta)
        return _store_version(latest.number + 1, versions, bases, len(self))

    def _snapshots(self, number: int) -> StoreVersion:
        """Write a version of snapshots only."""
        writer = self._number_of_writer(0)
        bases = [SliceFile(slice, matcher.version, writer) for slice, matcher in enumerate(self._matchers)]
        for base, matcher in zip(bases, self._matchers, strict=True):
            matcher.snapshot(self.storage.below(base.base_name))
        return _store_version(number, [base.version for base in bases], bases, len(self))

    def _number_of_writer(self, before: int) -> int:
        """Of this writer, and at a URI of no other; in a directory there is only one."""
        if self._is_local:
            return before
        if self._writer is None:
            taken = [int(name.rpartition("/")[2]) for name in self.storage.names("writers/")]
            number = max([0, *taken, *self._writers_of_latest()]) + 1
            while not self.storage.create(f"writers/{number:010d}", [b"taken\n"]):
                number += 1
            for old in taken:
                self.storage.remove(f"writers/{old:010d}")
            self._writer = number
        return self._writer

    def _writers_of_latest(self) -> list[int]:
        latest = self._head.versions[-1:]
        return [version.base(slice).writer for version in latest for slice in range(len(version.slices))]

    def _create_settings(self) -> None:
        content = msgspec.json.encode(self.settings)
        if self._is_local:
            _write(self.storage, SETTINGS, content)
        elif not self.storage.create(SETTINGS, [content]):
            raise StorageLocked(f"another process has just created a store at {self.storage.uri}; open that")

    def _publish_head(self, version: StoreVersion) -> None:
        versions = (*self._head.versions, version)
        head = StoreHead(versions[-HISTORY:])
        content = msgspec.json.encode(head)
        if self._is_local:
            _write(self.storage, HEAD, content)
        else:
            self._create_head(head_name(self.settings.identity, version.number), content)
        self._head = head
        self._outdated |= _outdated(versions, HISTORY)

    def _create_head(self, name: str, content: bytes) -> None:
        if not self.storage.create(name, [content]) and self.storage.read(name) != content:
            self._writer = None  # the other one's number may be the higher one
            raise StorageLocked(
                f"another process has changed the subscriptions at {self.storage.uri} at the same time; nothing of "
                "this change was done, repeat it"
            )
        for old in self.storage.names(head_prefix(self.settings.identity))[:-HEADS_MAX]:
            self.storage.remove(old)

    def _delete_what_no_version_needs(self, changed: Sequence[int]) -> None:
        """Look at the slices whose files are no longer needed and, in a directory, at those just changed: a change that
        failed may have left some.
        """
        for slice in sorted({*self._outdated, *(changed if self._is_local else ())}):
            oldest = _oldest(self._head.versions, slice)
            for name in self.storage.names(f"{slice_name(slice)}/"):
                file = _file_of(name)
                is_needed = file.writer in oldest and file.version >= oldest[file.writer]
                if not is_needed and (self._writer is None or file.writer <= self._writer):
                    self.storage.remove(name)
            directory = self.storage.path(slice_name(slice))
            for partial in directory.rglob("*.partial") if directory is not None else ():
                partial.unlink()
        for partial in self.directory.glob("*.partial") if self._is_local else ():
            partial.unlink()
        self._outdated = set()


def _check_slices(slices: int) -> None:
    if not 1 <= slices <= SLICES_MAX:
        raise InvalidValue(f"a store has between 1 and {SLICES_MAX} slices, got {slices}")


def _divided(matchers: Sequence[Any], kind: Any, slices: int, version: int) -> list[Any]:
    """The subscriptions of these matchers in as many new ones, which start at a version."""
    parts: list[list[tuple[Ids, Any]]] = [[] for _ in range(slices)]
    for matcher in matchers:
        for ids, filters in matcher.subscriptions():
            numbers = slice_of(ids, slices)
            for number in np.unique(numbers):
                chosen = np.flatnonzero(numbers == number)
                parts[number].append((ids[chosen], filters.take(chosen)))
    return [kind.renumbered(version, part) for part in parts]


def _store_version(
    number: int, versions: Sequence[int], bases: Sequence[SliceFile], subscriptions: int
) -> StoreVersion:
    writers = tuple(base.writer for base in bases)
    return StoreVersion(
        number,
        tuple(versions),
        tuple(base.version for base in bases),
        subscriptions,
        writers if any(writers) else msgspec.UNSET,
    )


def _outdated(versions: Sequence[StoreVersion], kept: int) -> set[int]:
    """The slices whose files no version needs any more, if only the last `kept` of these versions are kept."""
    found: set[int] = set()
    for version, following in pairwise(versions[: -kept + 1 or None] if len(versions) > kept else ()):
        shared = min(len(version.slices), len(following.slices))
        found |= {number for number in range(shared) if version.base(number) != following.base(number)}
        found |= set(range(shared, len(version.slices)))
    return found


def _oldest(versions: Sequence[StoreVersion], slice: int) -> dict[int, int]:
    """The version of the oldest snapshot of a slice that these versions need, for each writer."""
    bases = [version.base(slice) for version in versions if slice < len(version.slices)]
    return {base.writer: base.version for base in reversed(bases)}  # they only get younger


def _file_of(name: str) -> SliceFile:
    """The snapshot or delta that an object belongs to."""
    slice, file, *_ = name.split("/")
    version, _, writer = file.partition("-")[2].partition("-")
    return SliceFile(int(slice.partition("-")[2]), int(version), int(writer or 0))


def _small_delta(matcher: Any, before: int) -> bytes | None:
    """The change since a version, unless a new snapshot costs a reader less than applying it."""
    try:
        delta: bytes = matcher.delta(since=before)
    except InvalidValue:  # more than the change log keeps
        return None
    share = matcher.statistics().memory_bytes // DELTA_SHARE
    return delta if len(delta) <= min(max(DELTA_BYTES_MIN, share), DELTA_BYTES_MAX) else None


def _write(storage: ObjectStorage, name: str, content: bytes) -> None:
    storage.write(name, [content])
