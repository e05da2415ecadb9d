"""The cache of remote segments: exact, bounded, private, and shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.property.object_stores import memory_storage
from tests.unit.broker.slices.small_stores import add, expected, found, open_all, read

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.objects import LocalStorage, ObjectStorage
from lavant.broker.storage.objects.arrow import ArrowStorage
from lavant.broker.storage.objects.cache import ObjectCache, shared_cache
from lavant.core.errors import CorruptSnapshot, InvalidValue, StorageFailed, StorageFull

FIRST = {id: id % 5 for id in range(40)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAVANT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetched(storage: ArrowStorage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of segments that are read from the storage from now on."""
    names: list[str] = []
    real = ArrowStorage.read

    def noting(self: ArrowStorage, name: str, start: int = 0, length: int | None = None) -> bytes:
        names.extend([name] if name.startswith("segment-") else [])
        return real(self, name, start, length)

    monkeypatch.setattr(ArrowStorage, "read", noting)
    return names


def made(slices: int = 2) -> ArrowStorage:
    storage = memory_storage()
    SliceStore.create(storage, slices=slices)
    add(SliceStore.open(storage), FIRST)  # a new writer begins with snapshots
    return storage


def test_a_segment_is_fetched_once_and_mapped_from_then_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = made()
    names = fetched(storage, monkeypatch)
    for _ in range(3):
        assert read(storage) == expected(FIRST)
    assert len(names) == len(set(names)) == len(list(cache.iterdir())) > 0
    assert cache.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in cache.iterdir())


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-5], lambda content: content[:-70] + b"?" + content[-69:], lambda _: b""]
)
def test_a_damaged_entry_is_fetched_again(cache: Path, damage: Callable[[bytes], bytes]) -> None:
    storage = made()
    assert read(storage) == expected(FIRST)
    for path in cache.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    assert read(storage) == expected(FIRST)


def test_a_segment_that_is_damaged_at_its_source_is_an_error_that_names_it(cache: Path) -> None:
    storage = made(slices=1)
    (name,) = [name for name in storage.names("slice-0000/base-0000000001-2") if "/segment-" in name]
    content = storage.read(name)
    storage.write(name, [content[:-70], b"?", content[-69:]])
    with pytest.raises(CorruptSnapshot, match=r"segment-.* is damaged: its content is not what its name says"):
        read(storage)
    storage.remove(name)
    with pytest.raises(CorruptSnapshot, match=r"segment-.* is missing"):
        read(storage)


def test_a_store_that_was_recreated_at_its_uri_is_never_read_from_old_content(cache: Path) -> None:
    storage = memory_storage()
    for number in range(3):
        for name in storage.names():
            storage.remove(name)
        wanted = {id: (id + number) % 5 for id in range(40)}
        SliceStore.create(storage, slices=2)
        add(SliceStore.open(storage), wanted)
        assert read(storage) == expected(wanted)


def test_beyond_its_limit_the_entries_unused_for_longest_go(tmp_path: Path) -> None:
    source = LocalStorage(tmp_path / "source")
    for number in range(6):
        source.write(f"segment-{number}", [bytes(100)])
    cache = ObjectCache(tmp_path / "cache", 350)

    def use(number: int) -> None:
        assert cache.open(source, f"segment-{number}", Path.read_bytes) == bytes(100)
        path = tmp_path / "cache" / f"segment-{number}"
        os.utime(path, ns=(next(clock), next(clock)))

    clock = iter(range(1, 1000))
    for number in (0, 1, 2, 0, 3):
        use(number)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["segment-0", "segment-2", "segment-3"]
    for number in (2, 4, 5):
        use(number)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["segment-2", "segment-4", "segment-5"]


def test_an_object_larger_than_the_limit_is_used_all_the_same(tmp_path: Path) -> None:
    source = LocalStorage(tmp_path / "source")
    source.write("segment-1", [bytes(1000)])
    assert len(ObjectCache(tmp_path / "cache", 10).open(source, "segment-1", Path.read_bytes)) == 1000


def test_a_mapped_segment_that_is_deleted_stays_mapped(cache: Path) -> None:
    storage = made()
    reader = SliceReader(storage)
    matchers = open_all(reader, reader.version())
    for path in cache.iterdir():
        path.unlink()
    assert found(matchers) == expected(FIRST)


SCRIPT = """
import sys
from pathlib import Path
from lavant.broker.storage.objects import LocalStorage
from lavant.broker.storage.objects.cache import ObjectCache
source, cache = LocalStorage(Path(sys.argv[1])), ObjectCache(Path(sys.argv[2]), 2500)
for turn in range(150):
    number = (turn * 7 + int(sys.argv[3])) % 10
    assert cache.open(source, f"segment-{number}", Path.read_bytes) == bytes([number]) * 1000
"""


def test_processes_that_fetch_and_delete_at_once_all_read_what_is_right(tmp_path: Path) -> None:
    source = LocalStorage(tmp_path / "source")
    for number in range(10):
        source.write(f"segment-{number}", [bytes([number]) * 1000])
    places = [str(tmp_path / "source"), str(tmp_path / "cache")]
    running = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, *places, str(seed)], stderr=subprocess.PIPE)
        for seed in range(4)
    ]
    assert [(process.communicate()[1][-2000:], process.returncode) for process in running] == [(b"", 0)] * 4
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 2500


def test_what_a_killed_process_has_left_is_deleted_and_what_arrives_is_not(tmp_path: Path) -> None:
    source = LocalStorage(tmp_path / "source")
    source.write("segment-1", [bytes(100)])
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "cache").mkdir(0o700)
    for pid in (gone.pid, os.getpid()):
        (tmp_path / "cache" / f"segment-0.{pid}.0123456789ab.partial").write_bytes(bytes(100))
    ObjectCache(tmp_path / "cache", 10).open(source, "segment-1", Path.read_bytes)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [
        f"segment-0.{os.getpid()}.0123456789ab.partial",
        "segment-1",
    ]


def test_a_directory_that_others_may_write_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = made()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("LAVANT_CACHE", str(tmp_path / "open"))
    with pytest.raises(StorageFailed, match="others may write to it; set LAVANT_CACHE to a directory of your own"):
        read(storage)
    monkeypatch.setenv("LAVANT_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed, match="cannot use the cache"):
        read(storage)


def test_no_room_is_said_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    class Full(LocalStorage):
        def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
            raise OSError(28, "No space left on device")

    source: ObjectStorage = Full(tmp_path / "source")
    with pytest.raises(StorageFull, match="no room for segment-1 in the cache"):
        ObjectCache(tmp_path / "cache", 10).open(source, "segment-1", Path.read_bytes)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("text", ["10GB", "-1", "0", "1.5"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVANT_CACHE_BYTES", text)
    with pytest.raises(InvalidValue, match=f"LAVANT_CACHE_BYTES is a number of bytes such as .*, got '{text}'"):
        shared_cache()
