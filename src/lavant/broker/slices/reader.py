"""Reads slices of subscriptions from disk at a given version; `store.py` describes the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lavant.broker.matching import MATCHERS
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, IdentityMismatch, InvalidValue
from lavant.core.files import local_path
from lavant.core.identities import UNKNOWN, derived_identity, is_other

T = TypeVar("T")


class StoreSettings(msgspec.Struct, frozen=True):
    scheme: str
    slices: int
    format: int = 1
    identity: str = UNKNOWN
    """Identifies this store, as opposed to another one in the same place."""


class StoreVersion(msgspec.Struct, frozen=True):
    """A version of the whole store: the version of each slice, and of the snapshot it builds on."""

    number: int
    slices: tuple[int, ...]
    bases: tuple[int, ...]
    subscriptions: int = 0


class StoreHead(msgspec.Struct, frozen=True):
    versions: tuple[StoreVersion, ...]


class SliceReader:
    """Opens slices at a given version, from shared files.

    It reads *one* store: that with the given identity, or else the one found. Another store in its place is an error,
    because its versions have the same numbers.
    """

    def __init__(self, directory: str | Path, identity: str = UNKNOWN) -> None:
        self.directory = local_path(directory)
        self.is_of_old = False
        self.settings = self._settings()
        self._check(identity, self.identity)

    @property
    def identity(self) -> str:
        return self.settings.identity

    @property
    def address(self) -> str:
        """Opens the same store in another process."""
        return str(self.directory.absolute())

    def head(self) -> StoreHead:
        return _read_json(self.directory, "head.json", StoreHead)

    def version(self, number: int | None = None) -> StoreVersion:
        """The latest version, or the one with this number."""
        versions = self.head().versions
        if number is None:
            return versions[-1]
        for version in versions:
            if version.number == number:
                return version
        raise InvalidValue(
            f"version {number} is no longer kept; {self.directory} holds {versions[0].number} to {versions[-1].number}"
        )

    def matcher(self, number: int, version: StoreVersion, known: Any = None) -> Any:
        """Slice `number` at a version: `known` brought forward if possible, else opened from files."""
        wanted, base = version.slices[number], version.bases[number]
        if known is not None and known.version == wanted:
            return known
        if known is None or not base <= known.version <= wanted:
            known = MATCHERS[self.settings.scheme].open(base_path(self.directory, number, base))
        while known.version < wanted:
            path = delta_path(self.directory, number, known.version)
            try:
                delta = path.read_bytes()
            except FileNotFoundError:
                raise CorruptSnapshot(f"{path} is missing; restore it, or read a version that is kept") from None
            known.apply(delta)
        self._check(self.identity, self._settings().identity)  # these files may already belong to another store
        return known

    def _settings(self) -> StoreSettings:
        settings = _read_json(self.directory, "store.json", StoreSettings)
        self.is_of_old = settings.identity == UNKNOWN
        if not self.is_of_old:
            return settings
        # This file is written once, with the store, and alone distinguishes it from others.
        written_ns = (self.directory / "store.json").stat().st_mtime_ns
        return msgspec.structs.replace(settings, identity=derived_identity(written_ns))

    def _check(self, expected: str, found: str) -> None:
        if is_other(expected, found):
            raise IdentityMismatch(
                f"the subscriptions in {self.directory} are not those read before: their identity was {expected} "
                f"and is {found}. If the store was recreated, start afresh with another output directory"
            )


def _read_json(directory: Path, name: str, type: type[T]) -> T:
    try:
        return msgspec.json.decode((directory / name).read_bytes(), type=type)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{directory} holds no subscriptions: {name} is missing") from None
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{directory / name} is damaged: {error}; restore it from a copy") from None


def slice_path(directory: Path, number: int) -> Path:
    return directory / f"slice-{number:04d}"


def base_path(directory: Path, number: int, version: int) -> Path:
    return slice_path(directory, number) / f"base-{version:010d}"


def delta_path(directory: Path, number: int, version: int) -> Path:
    return slice_path(directory, number) / f"delta-{version:010d}"
