"""A change that fails half-way, or a process that dies in it: the version before holds, and the store goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.broker.slices.small_stores import Oracle, add, expected, found, open_all, read

from lavant.broker.slices import SliceReader, SliceStore, slice_of
from lavant.broker.slices import store as module
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import UnknownSubscription

FIRST: Oracle = {id: id % 5 for id in range(20)}
LOST: Oracle = dict.fromkeys(range(100, 110), 1)


class Crash(Exception):
    """Stands for the end of the process, or a full disk."""


Write = Callable[[ObjectStorage, str, bytes], None]


def failing(*, at: int, real: Write = module._write) -> Write:
    """A replacement of files that leaves the `at`-th of them half-written."""
    count = 0

    def write(storage: ObjectStorage, name: str, content: bytes) -> None:
        nonlocal count
        count += 1
        if count > at:
            path = storage.path(name)
            assert path is not None
            path.with_name(path.name + ".partial").write_bytes(content[: len(content) // 2])
            raise Crash(name)
        real(storage, name, content)

    return write


def crash_at_head(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    real = module._write

    def write(storage: ObjectStorage, name: str, content: bytes) -> None:
        if name == "head.json":
            raise Crash
        real(storage, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", write)
        with pytest.raises(Crash):
            change()


@pytest.fixture(params=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "store", scheme=request.param, slices=4)
    add(made, FIRST)
    return made


def test_after_a_crash_between_deltas_and_head_the_version_before_is_read(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_at_head(monkeypatch, lambda: add(store, LOST))
    assert len(list(store.directory.glob("slice-*/delta-0000000001"))) == 4  # deltas to a version that never was
    assert SliceReader(store.directory).version().number == 1
    assert read(store.directory) == expected(FIRST)
    assert len(SliceStore.open(store.directory)) == 20


@pytest.mark.parametrize("reopen", [True, False])
def test_the_next_change_writes_over_the_deltas_of_one_that_failed(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch, reopen: bool
) -> None:
    reader = SliceReader(store.directory)
    known = open_all(reader, reader.version())
    crash_at_head(monkeypatch, lambda: add(store, LOST))
    if reopen:
        store = SliceStore.open(store.directory)
    assert (store.version, len(store)) == (1, 20)
    other = {200 + id: 2 for id in range(10)}
    assert add(store, other) == 2
    assert read(store.directory) == expected({**FIRST, **other})
    assert read(store.directory, 1) == expected(FIRST)
    assert found(open_all(reader, reader.version(), known), store.settings.scheme) == expected({**FIRST, **other})
    assert add(store, LOST) == 3  # nobody has these ids
    assert read(store.directory) == expected({**FIRST, **other, **LOST})


def test_a_removal_that_failed_has_removed_nobody(store: SliceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_at_head(monkeypatch, lambda: store.remove(list(FIRST)))
    assert len(store) == 20
    store.remove([3])
    with pytest.raises(UnknownSubscription):
        store.remove([3])
    assert read(store.directory) == expected({id: n for id, n in FIRST.items() if id != 3})


@pytest.mark.parametrize("reopen", [True, False])
@pytest.mark.parametrize("at", range(5))
def test_whichever_file_a_change_fails_at_nothing_of_it_stays(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch, at: int, reopen: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", failing(at=at))
        with pytest.raises(Crash):
            add(store, LOST)  # four deltas and the head
    if reopen:
        store = SliceStore.open(store.directory)
    assert found(store._matchers, store.settings.scheme) == expected(FIRST)
    assert read(store.directory) == expected(FIRST)
    store.remove([3])
    assert read(store.directory) == expected({id: n for id, n in FIRST.items() if id != 3})


def test_a_large_change_that_failed_leaves_a_base_that_no_small_one_after_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SliceStore.create(tmp_path, slices=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "DELTA_BYTES_MAX", 10)
        crash_at_head(monkeypatch, lambda: add(store, LOST))
    assert (tmp_path / "slice-0000" / "base-0000000001").exists()
    add(store, FIRST)
    assert read(tmp_path) == expected(FIRST)
    for id in range(500, 500 + module.DELTAS_MAX + module.HISTORY + 2):
        add(store, {id: 6})
    assert read(tmp_path) == expected(FIRST)
    assert not (tmp_path / "slice-0000" / "base-0000000001").exists()


def test_a_large_change_that_failed_is_written_over_by_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DELTA_BYTES_MAX", 10)
    store = SliceStore.create(tmp_path, slices=1)
    crash_at_head(monkeypatch, lambda: add(store, LOST))
    add(store, FIRST)
    assert read(tmp_path) == expected(FIRST)


def test_half_a_delta_that_a_crash_left_does_not_disturb_a_new_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SliceStore.create(tmp_path, slices=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", failing(at=0))
        with pytest.raises(Crash):
            add(store, LOST)
    assert (tmp_path / "slice-0000" / "delta-0000000000.partial").exists()
    (tmp_path / ".head.json.0123456789ab.partial").write_bytes(b"half")
    store = SliceStore.open(tmp_path)
    monkeypatch.setattr(module, "DELTA_BYTES_MAX", 10)
    assert add(store, FIRST) == 1
    assert read(tmp_path) == expected(FIRST)
    assert list(tmp_path.rglob("*.partial")) == []


def test_an_error_behind_the_new_head_leaves_memory_and_disk_in_agreement(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a rename lasts is not known where its sync fails; what readers see by then must hold for the writer."""
    real = module._write

    def write(storage: ObjectStorage, name: str, content: bytes) -> None:
        real(storage, name, content)
        if name == "head.json":
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", write)
        with pytest.raises(Crash):
            add(store, LOST)
    assert store.version == SliceReader(store.directory).version().number == 2
    assert found(store._matchers, store.settings.scheme) == read(store.directory) == expected({**FIRST, **LOST})
    assert add(store, {300: 3}) == 3
    assert read(store.directory) == expected({**FIRST, **LOST, 300: 3})


def test_an_interrupted_addition_is_forgotten(store: SliceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    last = int(slice_of(np.array(list(LOST), np.uint32), 4).max())
    with monkeypatch.context() as patch:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(store._matchers[last], "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            add(store, LOST)
    assert found(store._matchers, store.settings.scheme) == expected(FIRST)


def test_a_store_whose_creation_was_cut_short_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in (0, 1):
        with monkeypatch.context() as patch:
            patch.setattr(module, "_write", failing(at=at))
            with pytest.raises(Crash):
                SliceStore.create(tmp_path, slices=2)
    add(SliceStore.create(tmp_path, slices=3), FIRST)
    assert read(tmp_path) == expected(FIRST)
