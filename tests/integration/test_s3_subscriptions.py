"""Subscriptions on S3: written, read through the cache, re-sliced, and never by two writers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.object_store import ObjectStore
from tests.property.object_stores import s3_uri
from tests.unit.broker.slices.small_stores import add, expected, read
from tests.unit.broker.slices.test_reslice import needed_files, slice_files

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices import store as module
from lavant.broker.storage.objects import open_storage
from lavant.core.errors import CorruptSnapshot, IdentityMismatch, InvalidValue, StorageLocked


@pytest.fixture
def uri(objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LAVANT_CACHE", str(tmp_path / "cache"))
    return s3_uri(objects, f"stores of %25/{tmp_path.name}")


def test_a_store_lives_on_s3_with_all_its_versions(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY", 3)
    monkeypatch.setattr(module, "HEADS_MAX", 2)
    with pytest.raises(CorruptSnapshot, match=r"holds no subscriptions: store\.json is missing"):
        SliceReader(uri)
    store = SliceStore.create(uri, slices=2)
    with pytest.raises(InvalidValue, match="holds a store already"):
        SliceStore.create(uri)
    held: dict[int, int] = {}
    for number in range(6):
        add(store, {number: number % 5, 50 + number: 1})
        held |= {number: number % 5, 50 + number: 1}
        if number % 2:
            store = SliceStore.open(uri)
            store.reslice(2 + number)
        assert read(uri) == expected(held)
    reader = SliceReader(uri)
    head = reader.head()
    assert [read(uri, version.number) for version in head.versions][-1] == expected(held)
    assert len(head.versions) == 3
    assert needed_files(head) <= slice_files(reader.storage)
    assert len(reader.storage.names("head-")) == 2
    assert len(reader.storage.names("writers/")) == 1
    with pytest.raises(InvalidValue, match="is no local directory"):
        _ = reader.directory


def test_of_two_writers_at_once_one_makes_the_version_and_the_other_repeats(uri: str) -> None:
    SliceStore.create(uri, slices=3)
    writers = [SliceStore.open(uri) for _ in range(3)]

    def change(number: int) -> None:
        while True:
            try:
                add(writers[number], {100 * number + k: number for k in range(4)})
                return
            except StorageLocked:
                continue

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(change, range(3)))
    assert SliceReader(uri).version().number == 3
    assert read(uri) == expected({100 * number + k: number for number in range(3) for k in range(4)})


def test_another_store_at_the_same_uri_is_noticed(uri: str) -> None:
    add(SliceStore.create(uri, slices=1), {1: 1})
    reader = SliceReader(uri)
    reader.matcher(0, reader.version())
    storage = open_storage(uri)
    for name in storage.names():
        storage.remove(name)
    with pytest.raises(CorruptSnapshot, match="holds no subscriptions"):
        reader.version()
    add(SliceStore.create(uri, slices=1), {1: 2})
    for use in (reader.version, lambda: reader.matcher(0, SliceReader(uri).version())):
        with pytest.raises(IdentityMismatch, match="are not those read before"):
            use()
    with pytest.raises(IdentityMismatch, match="are not those read before"):
        SliceReader(uri, reader.identity)


def test_a_store_copied_from_files_is_read_and_continued(uri: str, tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path / "store", slices=2)
    add(store, {1: 1, 2: 2, 3: 3})
    copy = open_storage(uri)
    for name in store.storage.names():
        copy.write(name, [store.storage.read(name)])
    assert read(uri) == expected({1: 1, 2: 2, 3: 3})
    again = SliceStore.open(uri)
    assert again.settings.identity == store.settings.identity
    again.remove([2])
    assert read(uri) == expected({1: 1, 3: 3})
    assert read(uri, 1) == expected({1: 1, 2: 2, 3: 3})
