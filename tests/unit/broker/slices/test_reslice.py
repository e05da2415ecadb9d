"""Another number of slices: a version like others, whose files are apart from those of the layouts before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.broker.slices.small_stores import Oracle, add, expected, files, found, open_all, read

from lavant.broker.slices import SliceReader, SliceStore, slice_of
from lavant.broker.slices import store as module
from lavant.broker.slices.reader import StoreHead
from lavant.broker.storage.objects import LocalStorage, ObjectStorage
from lavant.core.errors import InvalidValue

FIRST: Oracle = {id: id % 5 for id in range(60)}


@pytest.fixture(params=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "store", scheme=request.param, slices=4)
    add(made, FIRST)
    return made


@pytest.mark.parametrize("slices", [1, 2, 3, 7, 16])
def test_every_subscription_moves_to_the_slice_that_its_id_says(store: SliceStore, slices: int) -> None:
    store.remove([5, 6])
    left = {id: number for id, number in FIRST.items() if id not in (5, 6)}
    assert store.reslice(slices) == 3
    assert (store.slices, store.version, len(store)) == (slices, 3, 58)
    reader = SliceReader(store.directory)
    version = reader.version()
    assert (len(version.slices), version.subscriptions) == (slices, 58)
    for number, matcher in enumerate(open_all(reader, version)):
        for ids, _ in matcher.subscriptions():
            assert set(slice_of(ids, slices).tolist()) == {number}
    assert read(store.directory) == expected(left)
    assert read(store.directory, 2) == expected(left)
    assert read(store.directory, 1) == expected(FIRST)
    again = SliceStore.open(store.directory)
    assert again.slices == slices
    again.remove([7])
    assert read(store.directory) == expected({id: number for id, number in left.items() if id != 7})


def test_an_open_slice_of_one_layout_is_not_taken_for_one_of_the_other(store: SliceStore) -> None:
    scheme = store.settings.scheme
    reader = SliceReader(store.directory)
    before = reader.version()
    known = open_all(reader, before)
    store.reslice(6)
    for _ in range(3):
        known = open_all(reader, reader.version(), known)
        assert found(known, scheme) == expected(FIRST)
        known = open_all(reader, before, known)
        assert found(known, scheme) == expected(FIRST)
    add(store, {100: 3})
    known = open_all(reader, reader.version(), known)
    assert found(known, scheme) == expected({**FIRST, 100: 3})


def test_the_same_number_makes_no_version_and_writes_nothing(store: SliceStore) -> None:
    before = files(store.directory)
    assert store.reslice(4) == 1
    assert files(store.directory) == before


@pytest.mark.parametrize("slices", [0, -1, module.SLICES_MAX + 1])
def test_a_number_that_cannot_be_is_refused(store: SliceStore, slices: int) -> None:
    with pytest.raises(InvalidValue, match=f"has between 1 and {module.SLICES_MAX} slices, got {slices}"):
        store.reslice(slices)
    assert read(store.directory) == expected(FIRST)


class Crash(Exception):
    pass


@pytest.mark.parametrize("slices", [2, 7])
@pytest.mark.parametrize("at", range(16))
def test_a_crash_at_any_write_leaves_the_old_layout_and_it_can_be_tried_again(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch, slices: int, at: int
) -> None:
    real, count = LocalStorage.write, 0

    def failing(self: LocalStorage, name: str, parts: object) -> None:
        nonlocal count
        count += 1
        if count > at:
            raise Crash
        real(self, name, parts)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "write", failing)
        try:
            store.reslice(slices)
        except Crash:
            assert (store.slices, store.version) == (4, 1)
            assert found(store._matchers, store.settings.scheme) == expected(FIRST)
        else:
            assert count <= at
    for again in (store, SliceStore.open(store.directory)):
        number = 100 + again.version
        add(again, {number: 1})
        again.remove([number])
        assert read(store.directory) == expected(FIRST)
    again.reslice(3)
    again.reslice(slices)
    assert read(store.directory) == expected(FIRST)


def slice_files(storage: ObjectStorage) -> set[str]:
    return {"/".join(name.split("/")[:2]) for name in storage.names("slice-")}


def needed_files(head: StoreHead) -> set[str]:
    """Snapshots and deltas from which the kept versions are read."""
    needed: set[str] = set()
    for version in head.versions:
        for number, wanted in enumerate(version.slices):
            base = version.base(number)
            needed.add(base.base_name)
            needed |= {base._replace(version=before).delta_name for before in range(base.version, wanted)}
    return needed


def test_files_of_old_layouts_go_with_the_last_version_that_needs_them(
    store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HISTORY", 4)
    for number, slices in enumerate([9, 9, 2, 9, 1, 3, 3, 3, 3, 3, 3]):
        store.reslice(slices)
        add(store, {200 + number: 1})
        head = SliceReader(store.directory).head()
        kept = slice_files(store.storage)
        assert needed_files(head) <= kept
        # A delta below a newer snapshot of the same slice stays until the snapshot before it goes.
        assert {name for name in kept if int(name[6:10]) >= max(len(v.slices) for v in head.versions)} == set()
        oldest = min(min(version.bases) for version in head.versions)
        assert all(int(name.partition("/")[2].partition("-")[2]) >= oldest for name in kept)
    assert slice_files(store.storage) == needed_files(head)


def test_a_store_that_was_never_resliced_is_written_as_ever(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path, slices=2)
    add(store, {1: 1, 2: 2, 3: 3})
    assert (tmp_path / "head.json").read_bytes() == (
        b'{"versions":[{"number":0,"slices":[0,0],"bases":[0,0],"subscriptions":0},'
        b'{"number":1,"slices":[1,1],"bases":[0,0],"subscriptions":3}]}'
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head.json", "slice-0000", "slice-0001", "store.json"]
