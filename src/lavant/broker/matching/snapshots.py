"""A matcher on disk: one file for each immutable segment, named by its content, and a manifest that lists them.

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
from lavant.core.errors import CorruptSnapshot

MANIFEST = "manifest.lavant"


class Part(NamedTuple):
    """A segment: what never changes, and the state (what was removed) that does."""

    meta: dict[str, Any]
    arrays: container.Arrays
    state: container.Arrays


def write(directory: Path, *, scheme: str, version: int, parts: Sequence[Part]) -> None:
    """Write the parts, then the manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    for part in parts:
        name = f"segment-{_content_hash(part)}.lavant"
        if not (directory / name).exists():
            container.write(directory / name, part.meta, part.arrays)
        names.append(name)
    previous = _segments_of_manifest(directory)
    states = {f"{i}.{key}": array for i, part in enumerate(parts) for key, array in part.state.items()}
    container.write(directory / MANIFEST, {"scheme": scheme, "version": version, "segments": names}, states)
    for stale in {path.name for path in directory.glob("segment-*.lavant")} - {*names, *previous}:
        (directory / stale).unlink(missing_ok=True)


def read(directory: Path, *, scheme: str) -> tuple[int, list[Part]]:
    """The version and the parts of the latest snapshot, mapped."""
    path = directory / MANIFEST
    if not path.exists():
        raise CorruptSnapshot(f"{directory} holds no snapshot: {MANIFEST} is missing")
    meta, states = container.map_file(path, verify=True)
    if meta["scheme"] != scheme:
        raise CorruptSnapshot(f"{directory} is a snapshot of scheme {meta['scheme']!r}, expected {scheme!r}")
    parts: list[Part] = []
    for number, name in enumerate(meta["segments"]):
        part_meta, arrays = container.map_file(directory / name)
        prefix = f"{number}."
        state = {key.removeprefix(prefix): array for key, array in states.items() if key.startswith(prefix)}
        parts.append(Part(part_meta, arrays, state))
    return int(meta["version"]), parts


def _segments_of_manifest(directory: Path) -> list[str]:
    if not (directory / MANIFEST).exists():
        return []
    try:
        meta, _ = container.map_file(directory / MANIFEST)
    except CorruptSnapshot:  # nobody can read it, and a new snapshot is the remedy
        return []
    segments: list[str] = meta["segments"]
    return segments


def _content_hash(part: Part) -> str:
    digest = hashlib.blake2b(msgspec.json.encode(part.meta, order="deterministic"), digest_size=16)
    for name, array in part.arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(_bytes_of(array))
    return digest.hexdigest()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
