"""A directory holds the old snapshot or the new one, never half of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lavant.broker.matching import PlainMatcher, container, snapshots
from lavant.broker.matching.snapshots import MANIFEST, SnapshotPart
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import CorruptSnapshot
from lavant.core.publications.batch import PublicationBatch


def part(number: int, *, meta: dict[str, Any] | None = None, removed: int = 0) -> SnapshotPart:
    state = {"removed": np.arange(removed, dtype=np.uint32)}
    return SnapshotPart({} if meta is None else meta, {"ids": np.array([number], np.uint32)}, state)


def write(directory: Path, version: int, parts: list[SnapshotPart]) -> None:
    snapshots.write(directory, scheme="test", version=version, parts=parts)


def numbers(directory: Path) -> tuple[int, list[int]]:
    """The version, and the number of each part."""
    version, parts = snapshots.read(directory, scheme="test")
    return version, [int(each.arrays["ids"][0]) for each in parts]


def segments(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("segment-*")}


def test_parts_come_back_in_order_with_their_state(tmp_path: Path) -> None:
    write(tmp_path / "new" / "directory", 7, [part(3, removed=2), part(1, meta={"a": 1})])
    version, (first, second) = snapshots.read(tmp_path / "new" / "directory", scheme="test")
    assert version == 7
    assert (first.meta, first.arrays["ids"].tolist(), first.state["removed"].tolist()) == ({}, [3], [0, 1])
    assert (second.meta, second.arrays["ids"].tolist(), second.state["removed"].tolist()) == ({"a": 1}, [1], [])


def test_an_empty_snapshot_is_one(tmp_path: Path) -> None:
    write(tmp_path, 0, [])
    assert numbers(tmp_path) == (0, [])


def test_a_segment_that_is_there_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, [part(1), part(2)])
    written: list[str] = []
    really_write = container.write

    def counting(storage: ObjectStorage, name: str, *arguments: Any) -> None:
        written.append(name)
        really_write(storage, name, *arguments)

    monkeypatch.setattr(container, "write", counting)
    write(tmp_path, 2, [part(1, removed=1), part(2), part(3)])
    assert len(written) == 2
    assert written[-1] == MANIFEST
    assert numbers(tmp_path) == (2, [1, 2, 3])


def test_parts_that_differ_only_in_what_their_arrays_mean_are_different_files(tmp_path: Path) -> None:
    write(tmp_path, 1, [part(1, meta={"dimensions": ["a"]})])
    write(tmp_path, 2, [part(1, meta={"dimensions": ["b"]})])
    _, (only,) = snapshots.read(tmp_path, scheme="test")
    assert only.meta == {"dimensions": ["b"]}


def test_a_filter_on_another_attribute_with_the_same_numbers_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    matcher = PlainMatcher()
    matcher.add([1], ["a > 5"])
    matcher.snapshot(tmp_path)
    matcher.remove([1])
    matcher.add([1], ["b > 5"])
    matcher.snapshot(tmp_path)
    matches = PlainMatcher.open(tmp_path).match(PublicationBatch.from_dicts([{"a": 6}, {"b": 6}]))
    assert [matches.of(i).tolist() for i in range(2)] == [[], [1]]


def test_only_segments_of_the_last_two_manifests_stay(tmp_path: Path) -> None:
    seen: list[set[str]] = [set()]
    for version in range(1, 6):
        write(tmp_path, version, [part(version), part(version + 1)])
        _, parts = snapshots.read(tmp_path, scheme="test")
        seen.append({f"segment-{snapshots._content_hash(each.meta, each.arrays)}.lavant" for each in parts})
        assert segments(tmp_path) == seen[-1] | seen[-2]


def test_a_crash_before_the_manifest_leaves_the_old_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, [part(1)])
    really_write = container.write

    def crash_at_the_manifest(storage: ObjectStorage, name: str, *arguments: Any) -> None:
        if name == MANIFEST:
            raise OSError("power failed")
        really_write(storage, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(container, "write", crash_at_the_manifest)
        with pytest.raises(OSError, match="power failed"):
            write(tmp_path, 2, [part(2), part(3)])
    assert numbers(tmp_path) == (1, [1])
    assert len(segments(tmp_path)) == 3
    write(tmp_path, 3, [part(4)])
    assert numbers(tmp_path) == (3, [4])
    assert len(segments(tmp_path)) == 2  # those of the crash are gone, those of the old manifest are not


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_crash_at_any_rename_leaves_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int) -> None:
    write(tmp_path, 1, [part(1)])
    really_replace, left = Path.replace, [renamed]

    def crash(source: Path, target: Path) -> Path:
        if not left[0]:
            raise OSError("power failed")
        left[0] -= 1
        return really_replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="power failed"):
            write(tmp_path, 2, [part(2), part(3)])
    assert numbers(tmp_path) == (1, [1])
    write(tmp_path, 2, [part(2), part(3)])
    assert numbers(tmp_path) == (2, [2, 3])


def test_a_new_snapshot_replaces_one_whose_manifest_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, 1, [part(1)])
    (tmp_path / MANIFEST).write_bytes(b"LAVANT1\n torn")
    with pytest.raises(CorruptSnapshot):
        numbers(tmp_path)
    write(tmp_path, 2, [part(2)])
    assert numbers(tmp_path) == (2, [2])


def test_the_state_of_removals_is_checked_when_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, 1, [part(1, removed=5)])
    manifest = tmp_path / MANIFEST
    data = bytearray(manifest.read_bytes())
    data[-60] ^= 1  # in the last array: 20 bytes and 44 of padding
    manifest.write_bytes(bytes(data))
    with pytest.raises(CorruptSnapshot, match=r"checksum of 0\.removed differs"):
        numbers(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 100, -65])
def test_a_torn_segment_is_refused(tmp_path: Path, keep: int) -> None:
    matcher = PlainMatcher()
    matcher.add(range(100), [f"a = {i}" for i in range(100)])
    matcher.snapshot(tmp_path)
    (segment,) = tmp_path.glob("segment-*")
    segment.write_bytes(segment.read_bytes()[:keep])
    with pytest.raises(CorruptSnapshot, match="segment-"):
        PlainMatcher.open(tmp_path)


def test_a_snapshot_of_another_scheme_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1, [])
    with pytest.raises(CorruptSnapshot, match="is a snapshot of scheme 'test', expected 'other'"):
        snapshots.read(tmp_path, scheme="other")


def test_a_directory_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptSnapshot, match=r"holds no snapshot: manifest\.lavant is missing"):
        snapshots.read(tmp_path, scheme="test")
