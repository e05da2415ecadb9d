"""Snapshots of a matcher: one file per immutable segment, named by its content, and a manifest that lists them.

A segment's file never changes, so a second snapshot into the same directory writes only new segments. The manifest is
replaced as a whole when all its segments are there: a reader finds either the old snapshot or the new one. Segments
that neither of the two uses are deleted; a reader that has them open keeps its mapping.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.broker.storage.objects.cache import shared_cache
from lavant.core.errors import CorruptSnapshot

Contents = tuple[dict[str, Any], dict[str, NDArray[Any]]]

MANIFEST = "manifest.lavant"


class SnapshotPart(NamedTuple):
    """A segment: its immutable content, and the state that changes (removals)."""

    meta: dict[str, Any]
    arrays: container.Arrays
    state: container.Arrays


def write(place: Path | ObjectStorage, *, scheme: str, version: int, parts: Sequence[SnapshotPart]) -> None:
    """Write the parts, then the manifest."""
    storage = open_storage(place)
    previous = _segments_of_manifest(storage)
    existing = set(storage.names("segment-"))
    names: list[str] = []
    for part in parts:
        name = f"segment-{_content_hash(part.meta, part.arrays)}.lavant"
        if name not in existing:
            container.write(storage, name, part.meta, part.arrays)
        names.append(name)
    states = {f"{i}.{key}": array for i, part in enumerate(parts) for key, array in part.state.items()}
    container.write(storage, MANIFEST, {"scheme": scheme, "version": version, "segments": names}, states)
    for stale in sorted(existing - {*names, *previous}):
        storage.remove(stale)


def read(place: Path | ObjectStorage, *, scheme: str) -> tuple[int, list[SnapshotPart]]:
    """The version and the parts of the latest snapshot, mapped. Remote segments are mapped in this machine's cache."""
    storage = open_storage(place)
    try:
        meta, states = _manifest(storage)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{storage.uri} holds no snapshot: {MANIFEST} is missing") from None
    if meta["scheme"] != scheme:
        raise CorruptSnapshot(f"{storage.uri} is a snapshot of scheme {meta['scheme']!r}, expected {scheme!r}")
    parts: list[SnapshotPart] = []
    for number, name in enumerate(meta["segments"]):
        part_meta, arrays = _segment(storage, name)
        prefix = f"{number}."
        state = {key.removeprefix(prefix): array for key, array in states.items() if key.startswith(prefix)}
        parts.append(SnapshotPart(part_meta, arrays, state))
    return int(meta["version"]), parts


def pack(*, scheme: str, version: int, parts: Sequence[SnapshotPart]) -> bytes:
    """The same as one byte string, for a copy that goes over a link."""
    metas = [part.meta for part in parts]
    arrays = {
        f"{number}.{kind}.{name}": array
        for number, part in enumerate(parts)
        for kind, named in (("arrays", part.arrays), ("state", part.state))
        for name, array in named.items()
    }
    return b"".join(container.pack({"scheme": scheme, "version": version, "parts": metas}, arrays))


def unpack(data: bytes | memoryview, *, scheme: str) -> tuple[int, list[SnapshotPart]]:
    """The version and the parts that `pack` was given, as views into `data`."""
    meta, arrays = container.unpack(memoryview(data), name="the copy of a matcher")
    if meta.get("scheme") != scheme:
        raise CorruptSnapshot(f"the copy is of a matcher of scheme {meta.get('scheme')!r}, expected {scheme!r}")
    named: list[dict[str, dict[str, NDArray[Any]]]] = [{"arrays": {}, "state": {}} for _ in meta["parts"]]
    for key, array in arrays.items():
        number, kind, name = key.split(".", 2)
        named[int(number)][kind][name] = array
    return int(meta["version"]), [SnapshotPart(part, **kinds) for part, kinds in zip(meta["parts"], named, strict=True)]


def _manifest(storage: ObjectStorage) -> Contents:
    path = storage.path(MANIFEST)
    if path is None:
        return container.unpack(memoryview(storage.read(MANIFEST)), name=f"{storage.uri} {MANIFEST}")
    if not path.exists():
        raise FileNotFoundError
    return container.map_file(path, verify=True)


def _segment(storage: ObjectStorage, name: str) -> Contents:
    path = storage.path(name)
    if path is not None:
        return container.map_file(path)
    try:
        return shared_cache().open(storage, name, lambda local: _verified(local, name))
    except FileNotFoundError:
        raise CorruptSnapshot(f"{storage.uri} {name} is missing; restore it, or take a new snapshot") from None


def _verified(path: Path, name: str) -> Contents:
    """The content of a file in the cache, if it is that which the name says."""
    try:
        meta, arrays = container.map_file(path)
    except CorruptSnapshot:
        if path.exists():
            raise
        raise FileNotFoundError(path) from None  # deleted by another process
    if name != f"segment-{_content_hash(meta, arrays)}.lavant":
        raise CorruptSnapshot("its content is not what its name says")
    return meta, arrays


def _segments_of_manifest(storage: ObjectStorage) -> list[str]:
    try:
        meta, _ = _manifest(storage)
    except (FileNotFoundError, CorruptSnapshot):  # if it is unreadable, a new snapshot is the remedy
        return []
    segments: list[str] = meta["segments"]
    return segments


def _content_hash(meta: dict[str, Any], arrays: container.Arrays) -> str:
    digest = hashlib.blake2b(msgspec.json.encode(meta, order="deterministic"), digest_size=16)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(_bytes_of(array))
    return digest.hexdigest()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
