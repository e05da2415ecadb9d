"""The log at a URI against the log in files: the same calls give the same offsets and publications."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.object_store import ObjectStore, object_store
from tests.property.object_stores import memory_storage, s3_uri
from tests.unit.broker.storage.log.publication_logs import append, everything, numbers, records

from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import CorruptSnapshot, IdentityMismatch, InvalidValue, StorageLocked

STEPS = st.lists(st.one_of(st.integers(1, 5), st.sampled_from(["trim", "cut", "reopen", "look"])), max_size=20)


class TwoLogs:
    """A log in files and one of objects, on which the same is done."""

    def __init__(self, directory: Path, start: int, data: st.DataObject) -> None:
        self.places: list[Any] = [directory, memory_storage()]
        self.begins, self.trimmed = [start], start
        self.data = data
        self.writers: list[LogWriter] = []
        self.reopen()
        self.look()

    def append(self, count: int) -> None:
        self.begins.append(self.begins[-1] + count)
        for writer in self.writers:
            assert writer.append(records(writer.end, count)) == self.begins[-2]

    def trim(self) -> None:
        self.trimmed = self.data.draw(st.integers(self.trimmed, self.begins[-1]), "trimmed")
        for writer in self.writers:
            writer.trim(self.trimmed)

    def cut(self) -> None:
        offset = self.data.draw(st.sampled_from([begin for begin in self.begins if begin >= self.trimmed]), "cut")
        self.begins = [begin for begin in self.begins if begin <= offset]
        for writer in self.writers:
            writer.cut(offset)
        self.look()  # nobody has read what was never confirmed

    def reopen(self) -> None:
        self.close()
        self.writers = [LogWriter(p, durable=False, file_bytes_max=1, start=self.begins[-1]) for p in self.places]

    def look(self) -> None:
        self.readers = [LogReader(place) for place in self.places]

    def check(self) -> None:
        end = self.begins[-1]
        assert [writer.end for writer in self.writers] == [end, end]
        if end > self.trimmed:
            first = self.data.draw(st.integers(self.trimmed, end - 1), "first")
            for reader in self.readers:
                assert reader.end() == end
                assert numbers(reader, first, end) == list(range(first, end))
                assert reader.start() <= self.trimmed
            last = self.data.draw(st.integers(first + 1, end), "last")
            for place in self.places:
                assert numbers(LogReader(place), first, last) == list(range(first, last))
                extents = reader.blocks(first, end)
                assert [each.first_offset for each in extents] == [
                    o for o in self.begins[:-1] if self._after(o) > first
                ]
                assert all(each.first_offset + each.publications == self._after(each.first_offset) for each in extents)

    def _after(self, offset: int) -> int:
        return self.begins[self.begins.index(offset) + 1]

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


@given(steps=STEPS, start=st.sampled_from([0, 7]), data=st.data())
def test_a_log_of_objects_does_what_one_of_files_does(steps: list[int | str], start: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory, closing(TwoLogs(Path(directory), start, data)) as logs:
        for step in steps:
            logs.append(step) if isinstance(step, int) else getattr(logs, step)()
            logs.check()


def test_a_second_writer_is_fenced_and_changes_nothing() -> None:
    storage = memory_storage()
    first, second = LogWriter(storage), LogWriter(storage)
    assert first.identity == second.identity
    first.append(records(0, 2))
    for count in (1, 2, 3):  # of the same publications too: they are other ones
        with pytest.raises(StorageLocked, match="has other publications at offset 0 already"):
            second.append(records(0, count))
    assert second.end == 0
    assert first.append(records(2, 1)) == 2
    assert everything(storage) == [0, 1, 2]
    assert LogWriter(storage).append(records(3, 1)) == 3
    with pytest.raises(StorageLocked):
        first.append(records(3, 1))


def test_a_writer_that_slept_while_another_trimmed_the_log_is_fenced_too() -> None:
    storage = memory_storage()
    slept, awake = LogWriter(storage), LogWriter(storage)
    for number in range(4):
        awake.append(records(3 * number, 3))
    awake.trim(9)
    with pytest.raises(StorageLocked, match="has other publications at offset 0 already"):
        slept.append(records(0, 2))
    assert awake.append(records(12, 1)) == 12
    reader = LogReader(storage)
    assert (reader.start(), reader.end()) == (9, 13)
    assert numbers(reader, 9, 13) == [9, 10, 11, 12]


def test_an_append_after_which_another_writer_takes_over_at_once_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory_storage()
    log = LogWriter(storage)
    log.append(records(0, 2))
    real = storage.create

    def taken_over(name: str, parts: Any) -> bool:
        monkeypatch.setattr(storage, "create", real)
        done = real(name, parts)
        append(storage, 3)
        return done

    monkeypatch.setattr(storage, "create", taken_over)
    assert log.append(records(2, 2)) == 2
    assert everything(storage) == list(range(7))
    with pytest.raises(StorageLocked):
        log.append(records(4, 1))


def test_an_append_whose_answer_was_lost_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory_storage()
    log = LogWriter(storage)
    log.append(records(0, 1))
    real = storage.create

    def lost(name: str, parts: Any) -> bool:
        real(name, parts)
        raise OSError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "create", lost)
        with pytest.raises(OSError, match="broke"):
            log.append(records(1, 2))
    assert log.end == 1
    assert log.append(records(1, 2)) == 1
    assert everything(storage) == [0, 1, 2]


def test_a_reader_lists_only_what_is_new_and_fetches_each_object_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory_storage()
    append(storage, 2, 2)
    reader = LogReader(storage)
    assert numbers(reader, 0, reader.end()) == [0, 1, 2, 3]
    append(storage, 2)
    listed: list[str] = []
    read: list[str] = []
    real_names, real_read = storage.names, storage.read

    def names(prefix: str = "", after: str = "") -> list[str]:
        listed.append(after)
        return real_names(prefix, after)

    def noting(name: str, *rest: Any) -> bytes:
        read.append(name)
        return real_read(name, *rest)

    monkeypatch.setattr(storage, "names", names)
    monkeypatch.setattr(storage, "read", noting)
    assert numbers(reader, 4, reader.end()) == [4, 5]
    assert listed == ["00000000000000000002.log"]
    assert [name for name in read if name != "log.json"] == ["00000000000000000004.log"]


def test_a_reader_of_a_range_lists_and_fetches_only_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory_storage()
    append(storage, *[3] * 10, start=5000)
    append(storage, *[7] * 20)
    listed: list[int] = []
    read: list[str] = []
    real_names, real_read = storage.names, storage.read

    def names(prefix: str = "", after: str = "") -> list[str]:
        found = real_names(prefix, after)
        listed.append(len(found))
        return found

    def noting(name: str, *rest: Any) -> bytes:
        read.append(name)
        return real_read(name, *rest)

    monkeypatch.setattr(storage, "names", names)
    monkeypatch.setattr(storage, "read", noting)
    assert numbers(LogReader(storage), 5046, 5049) == [5046, 5047, 5048]
    assert listed == [1]  # those of 504x
    assert [name for name in read if name != "log.json"] == ["00000000000000005044.log"]
    assert numbers(LogReader(storage), 5025, 5039) == list(range(5025, 5039))
    with pytest.raises(InvalidValue, match="ends at offset 5170, asked for 5171"):
        numbers(LogReader(storage), 5168, 5171)
    with pytest.raises(InvalidValue, match="starts at offset 5000, asked for 4999"):
        numbers(LogReader(storage), 4999, 5001)


def test_a_reader_is_told_what_was_trimmed_and_goes_on_behind_it() -> None:
    storage = memory_storage()
    append(storage, 2, 2, 2)
    reader = LogReader(storage)
    assert reader.end() == 6
    with LogWriter(storage) as log:
        log.trim(4)
    with pytest.raises(InvalidValue, match="starts at offset 4, asked for 0"):
        numbers(reader, 0, 6)
    assert numbers(reader, 4, 6) == [4, 5]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:40], "is cut short"),
        (lambda content: b"XXXX" + content[4:], "is damaged at byte 0"),
        (lambda content: content[:-40] + b"?" + content[-39:], "the checksum differs"),
    ],
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_is_never_passed_over(number: int, damage: Any, message: str) -> None:
    storage = memory_storage()
    append(storage, 2, 2, 2)
    name = f"{2 * number:020d}.log"
    storage.write(name, [damage(storage.read(name))])
    with pytest.raises(CorruptSnapshot, match=message):
        everything(storage)


def test_a_missing_object_is_noticed() -> None:
    storage = memory_storage()
    append(storage, 2, 2, 2)
    storage.remove("00000000000000000002.log")
    with pytest.raises(CorruptSnapshot, match="jumps from publication 2 to 4"):
        everything(storage)


def test_a_log_copied_from_files_can_be_read_and_continued(tmp_path: Path) -> None:
    append(tmp_path, 2, 3, 4)
    storage = memory_storage()
    for name in open_storage(tmp_path).names():
        storage.write(name, [open_storage(tmp_path).read(name)])
    append(storage, 2)
    assert everything(storage) == list(range(11))
    assert numbers(LogReader(storage), 1, 8) == list(range(1, 8))


def test_another_log_at_the_same_uri_is_not_read() -> None:
    storage = memory_storage()
    append(storage, 2)
    reader = LogReader(storage)
    assert reader.end() == 2
    for name in storage.names():
        storage.remove(name)
    append(storage, 5)
    with pytest.raises(IdentityMismatch, match="is not the one read before"):
        reader.end()
    with pytest.raises(IdentityMismatch, match="belongs to another owner"):
        LogWriter(storage, identity="mine")


def test_a_uri_without_a_log_is_an_empty_one() -> None:
    reader = LogReader(memory_storage())
    assert reader.end() == 0
    assert list(reader.read(0, 0)) == []
    assert reader.identity == ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.mark.external
def test_a_log_on_s3_grows_is_read_trimmed_and_fenced(server: ObjectStore) -> None:
    uri = s3_uri(server, "a log/of%20mine")
    storage: ObjectStorage = open_storage(uri)
    log, second = LogWriter(uri), LogWriter(uri)
    reader = LogReader(uri)
    for number in range(12):
        assert log.append(records(3 * number, 3)) == 3 * number
        assert reader.end() == 3 * number + 3
        assert numbers(reader, 3 * number, 3 * number + 3) == list(range(3 * number, 3 * number + 3))
    with pytest.raises(StorageLocked):
        second.append(records(0, 1))
    log.trim(30)
    assert storage.names() == ["00000000000000000030.log", "00000000000000000033.log", "log.json"]
    assert numbers(LogReader(uri), 30, 36) == list(range(30, 36))
