"""Reads slices of subscriptions at a given version; `store.py` describes the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from lavant.broker.matching import MATCHERS
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, IdentityMismatch, InvalidValue, too_new
from lavant.core.identities import UNKNOWN, derived_identity, is_other

SETTINGS = "store.json"
FORMAT = 1
HEAD = "head.json"
ATTEMPTS_MAX = 3
"""A remote head may be deleted between its listing and its reading, if the store changes all the time."""

T = TypeVar("T")


class StoreSettings(msgspec.Struct, frozen=True):
    scheme: str
    slices: int
    """At first; a version knows its own number."""
    format: int = FORMAT
    identity: str = UNKNOWN
    """Identifies this store, as opposed to another one in the same place."""


class StoreVersion(msgspec.Struct, frozen=True):
    """A version of the whole store: the version of each slice, and of the snapshot it builds on."""

    number: int
    slices: tuple[int, ...]
    bases: tuple[int, ...]
    subscriptions: int = 0
    writers: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    """The number of the writer of each slice's files; unset in stores that were always local."""

    def base(self, slice: int) -> SliceFile:
        """The snapshot of a slice that the version builds on."""
        return SliceFile(slice, self.bases[slice], 0 if self.writers is msgspec.UNSET else self.writers[slice])


class StoreHead(msgspec.Struct, frozen=True):
    versions: tuple[StoreVersion, ...]


class SliceFile(NamedTuple):
    """A snapshot of a slice at a version, or the change from it to the next."""

    slice: int
    version: int
    writer: int

    @property
    def base_name(self) -> str:
        return f"{slice_name(self.slice)}/base-{self._number}"

    @property
    def delta_name(self) -> str:
        return f"{slice_name(self.slice)}/delta-{self._number}"

    @property
    def _number(self) -> str:
        return f"{self.version:010d}" + (f"-{self.writer}" if self.writer else "")


class SliceReader:
    """Opens slices at a given version: from local files, or through this machine's cache of remote ones.

    It reads *one* store: that with the given identity, or else the one found. Another store in its place is an error,
    because its versions have the same numbers.
    """

    def __init__(self, place: str | Path | ObjectStorage, identity: str = UNKNOWN) -> None:
        self.storage = open_storage(place)
        self.is_of_old = False
        self.settings = self._settings()
        self._known_head: tuple[str, StoreHead] | None = None
        self._check(identity, self.identity)

    @property
    def identity(self) -> str:
        return self.settings.identity

    @property
    def address(self) -> str:
        """Opens the same store in another process; it may contain secrets."""
        return self.storage.address

    @property
    def directory(self) -> Path:
        return local_directory(self.storage)

    def head(self) -> StoreHead:
        for _ in range(ATTEMPTS_MAX):
            name = self._head_name()
            if self._known_head is not None and self._known_head[0] == name:
                return self._known_head[1]
            try:
                head = _decode_json(self.storage, name, self.storage.read(name), StoreHead)
            except FileNotFoundError:
                if name == HEAD:
                    break
                continue
            if name == HEAD:  # which is replaced, and has no identity in its name; the others never change
                self._check(self.identity, self._settings().identity)
            else:
                self._known_head = (name, head)
            return head
        self._check(self.identity, self._settings().identity)
        raise CorruptSnapshot(f"{self.storage.uri} holds no subscriptions: {HEAD} is missing")

    def version(self, number: int | None = None) -> StoreVersion:
        """The latest version, or the one with this number."""
        versions = self.head().versions
        if number is None:
            return versions[-1]
        for version in versions:
            if version.number == number:
                return version
        raise InvalidValue(
            f"version {number} is no longer kept; {self.storage.uri} holds {versions[0].number} to "
            f"{versions[-1].number}"
        )

    def matcher(self, number: int, version: StoreVersion, known: Any = None) -> Any:
        """Slice `number` at a version: `known` brought forward if possible, else opened from files."""
        wanted, base = version.slices[number], version.base(number)
        if known is not None and known.version == wanted:
            return known
        if known is None or not base.version <= known.version <= wanted:
            known = MATCHERS[self.settings.scheme].open(self.storage.below(base.base_name))
        while known.version < wanted:
            name = base._replace(version=known.version).delta_name
            try:
                delta = self.storage.read(name)
            except FileNotFoundError:
                raise CorruptSnapshot(
                    f"{self.storage.uri}/{name} is missing; restore it, or read a version that is kept"
                ) from None
            known.apply(delta)
        self._check(self.identity, self._settings().identity)  # these files may already belong to another store
        return known

    def _head_name(self) -> str:
        """The latest head. A store that was copied from files has `head.json` until its first change."""
        if self.storage.path(HEAD) is not None and self.storage.size(HEAD) is not None:
            return HEAD
        return max(self.storage.names(head_prefix(self.identity)), default=HEAD)

    def _settings(self) -> StoreSettings:
        try:
            content = self.storage.read(SETTINGS)
        except FileNotFoundError:
            raise CorruptSnapshot(f"{self.storage.uri} holds no subscriptions: {SETTINGS} is missing") from None
        settings = _decode_json(self.storage, SETTINGS, content, StoreSettings)
        if settings.format > FORMAT:
            raise too_new(f"{self.storage.uri}/{SETTINGS}", settings.format, FORMAT)
        self.is_of_old = settings.identity == UNKNOWN
        if not self.is_of_old:
            return settings
        # This file is written once, with the store, and alone distinguishes it from others.
        path = self.storage.path(SETTINGS)
        written = content if path is None else path.stat().st_mtime_ns
        return msgspec.structs.replace(settings, identity=derived_identity(written))

    def _check(self, expected: str, found: str) -> None:
        if is_other(expected, found):
            raise IdentityMismatch(
                f"the subscriptions in {self.storage.uri} are not those read before: their identity was {expected} "
                f"and is {found}. If the store was recreated, start afresh with another output directory"
            )


def _decode_json(storage: ObjectStorage, name: str, content: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=type)
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{storage.uri}/{name} is damaged: {error}; restore it from a copy") from None


def slice_name(number: int) -> str:
    return f"slice-{number:04d}"


def head_prefix(identity: str) -> str:
    return f"head-{identity}-"


def head_name(identity: str, version: int) -> str:
    """The head of a remote store at a version, as a name of its own, so that only one writer can create it."""
    return f"{head_prefix(identity)}{version:010d}.json"


def local_directory(storage: ObjectStorage) -> Path:
    path = storage.path(SETTINGS)
    if path is None:
        raise InvalidValue(f"{storage.uri} is no local directory")
    return path.parent
