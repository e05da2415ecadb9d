"""The publication log: what is appended is read again, from any offset, while it grows and after it was reopened."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.broker.storage.log.publication_logs import append, everything, numbers, records

from lavant.broker.storage.log import LogReader, LogWriter, blocks
from lavant.core.errors import InvalidValue, LimitExceeded

# ---- reading what was written ---------------------------------------------------------------------------------------


def test_publications_come_back_as_they_were(tmp_path: Path) -> None:
    given = records(0, 5)
    with LogWriter(tmp_path) as log:
        assert log.append(given) == 0
    (slab,) = LogReader(tmp_path).read(0, 5)
    assert (slab.first_offset, slab.records) == (0, given)
    assert slab.records.schema == given.schema


def test_blocks_may_have_different_columns_and_types(tmp_path: Path) -> None:
    given = [
        pa.RecordBatch.from_pydict({"a": [1]}),
        pa.RecordBatch.from_pydict({"b": ["x", None]}),
        pa.RecordBatch.from_pydict({"a": pa.array(["p", "q", "p"]).dictionary_encode()}),
    ]
    with LogWriter(tmp_path) as log:
        assert [log.append(each) for each in given] == [0, 1, 3]
    assert [slab.records for slab in LogReader(tmp_path).read(0, 6)] == given


def test_a_part_of_a_batch_is_appended_as_that_part(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.append(records(-3, 10).slice(3, 4))
    assert everything(tmp_path) == [0, 1, 2, 3]


def test_an_empty_log_ends_at_zero_and_gives_nothing(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log") as log:
        assert log.end == 0
    reader = LogReader(tmp_path / "log")
    assert reader.end() == 0
    assert list(reader.read(0, 0)) == []


def test_a_log_that_nobody_has_written_yet_is_empty(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "log")
    assert reader.end() == 0
    append(tmp_path / "log", 2)
    assert numbers(reader, 0, 2) == [0, 1]


@pytest.mark.parametrize("file_bytes_max", [1, 3000, 1 << 20])
def test_every_stretch_can_be_read(tmp_path: Path, file_bytes_max: int) -> None:
    end = append(tmp_path, 3, 1, 4, 2, file_bytes_max=file_bytes_max)
    reader = LogReader(tmp_path)
    for start in range(end + 1):
        for stop in range(start, end + 1):
            assert numbers(reader, start, stop) == list(range(start, stop))


def test_only_the_wanted_blocks_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 3, 3, 3)
    read: list[int] = []
    original = blocks.read_block

    def noting(block: blocks.LogBlock) -> pa.RecordBatch:
        read.append(block.first_offset)
        return original(block)

    monkeypatch.setattr("lavant.broker.storage.log.files.read_block", noting)
    assert numbers(LogReader(tmp_path), 3, 6) == [3, 4, 5]
    assert read == [3]


def test_a_stretch_beyond_the_end_is_refused(tmp_path: Path) -> None:
    append(tmp_path, 3)
    with pytest.raises(InvalidValue, match="ends at offset 3, asked for 4"):
        list(LogReader(tmp_path).read(0, 4))


def test_a_stretch_before_the_start_is_refused(tmp_path: Path) -> None:
    append(tmp_path, 3)
    with pytest.raises(InvalidValue, match="starts at offset 0, asked for -1"):
        list(LogReader(tmp_path).read(-1, 2))


def test_a_log_whose_oldest_file_was_deleted_says_where_it_starts(tmp_path: Path) -> None:
    append(tmp_path, 3, 2, file_bytes_max=1)
    blocks.files_of(tmp_path)[0].unlink()
    reader = LogReader(tmp_path)
    assert numbers(reader, 3, reader.end()) == [3, 4]
    with pytest.raises(InvalidValue, match="starts at offset 3, asked for 2"):
        list(reader.read(2, 5))


# ---- growing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_bytes_max", [1, 1 << 20])
def test_a_reader_sees_what_is_appended_later(tmp_path: Path, file_bytes_max: int) -> None:
    reader = LogReader(tmp_path)
    with LogWriter(tmp_path, durable=False, file_bytes_max=file_bytes_max) as log:
        for count in (2, 3, 1):
            log.append(records(log.end, count))
            assert reader.end() == log.end
            assert numbers(reader, 0, log.end) == list(range(log.end))


def test_a_stretch_that_came_after_the_last_look_is_found_by_reading(tmp_path: Path) -> None:
    append(tmp_path, 2)
    reader = LogReader(tmp_path)
    assert reader.end() == 2
    append(tmp_path, 3)
    assert numbers(reader, 1, 5) == [1, 2, 3, 4]


def test_a_reader_ignores_a_block_of_which_only_a_part_is_there(tmp_path: Path) -> None:
    append(tmp_path, 2)
    (file,) = blocks.files_of(tmp_path)
    whole = file.read_bytes()
    block = blocks.encode_block(records(2, 3), 2)
    reader = LogReader(tmp_path)
    for length in range(len(block)):
        file.write_bytes(whole + block[:length])
        assert reader.end() == 2
        assert everything(tmp_path) == [0, 1]
    file.write_bytes(whole + block)
    assert numbers(reader, 0, reader.end()) == [0, 1, 2, 3, 4]


def test_two_opens_in_sequence_continue_the_offsets(tmp_path: Path) -> None:
    assert append(tmp_path, 2, 1) == 3
    with LogWriter(tmp_path) as log:
        assert log.end == 3
        assert log.append(records(3, 2)) == 3
    assert everything(tmp_path) == [0, 1, 2, 3, 4]
    assert len(blocks.files_of(tmp_path)) == 1


# ---- files ----------------------------------------------------------------------------------------------------------


def test_files_roll_over_before_they_grow_beyond_the_limit(tmp_path: Path) -> None:
    size = len(blocks.encode_block(records(90, 3), 0))  # the longer numbers
    append(tmp_path, *[3] * 7, file_bytes_max=2 * size)
    assert [file.name for file in blocks.files_of(tmp_path)] == [blocks.file_name(n) for n in (0, 6, 12, 18)]
    assert max(file.stat().st_size for file in blocks.files_of(tmp_path)) <= 2 * size
    assert everything(tmp_path) == list(range(21))


def test_a_block_larger_than_a_file_gets_a_file_of_its_own(tmp_path: Path) -> None:
    append(tmp_path, 1, 50, 1, file_bytes_max=10)
    assert [file.stem.lstrip("0") for file in blocks.files_of(tmp_path)] == ["", "1", "51"]
    assert everything(tmp_path) == list(range(52))


def test_files_roll_over_by_their_size_at_reopening_too(tmp_path: Path) -> None:
    size = len(blocks.encode_block(records(90, 3), 0))  # the longer numbers
    for _ in range(4):
        append(tmp_path, 3, file_bytes_max=2 * size)
    assert len(blocks.files_of(tmp_path)) == 2


def test_a_crash_right_after_a_new_file_was_begun_loses_nothing(tmp_path: Path) -> None:
    append(tmp_path, 3)
    (tmp_path / blocks.file_name(3)).touch()
    assert everything(tmp_path) == [0, 1, 2]
    assert append(tmp_path, 2) == 5
    assert everything(tmp_path) == [0, 1, 2, 3, 4]


# ---- refusing -------------------------------------------------------------------------------------------------------


def test_an_empty_append_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.append(records(0, 1))
        with pytest.raises(InvalidValue, match="no publications to append"):
            log.append(records(0, 1).slice(0, 0))
        assert log.append(records(1, 1)) == 1
    assert everything(tmp_path) == [0, 1]


def test_a_block_that_no_reader_would_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BODY_BYTES_MAX", 2000)
    with LogWriter(tmp_path) as log:
        with pytest.raises(LimitExceeded, match="a block holds at most 2000; append fewer at once"):
            log.append(records(0, 100))
        log.append(records(0, 1))
    assert everything(tmp_path) == [0]


def test_a_durable_append_is_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    with LogWriter(tmp_path, durable=False) as log:
        log.append(records(0, 1))
        unsynced = len(synced)
    with LogWriter(tmp_path) as log:
        log.append(records(1, 1))
    (file,) = blocks.files_of(tmp_path)
    assert synced[unsynced:] == [file.stat().st_size]


def test_an_append_that_failed_leaves_nothing_behind_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with LogWriter(tmp_path) as log:
        log.append(records(0, 2))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                log.append(records(90, 3))
        assert log.end == 2
        assert everything(tmp_path) == [0, 1]
        assert log.append(records(2, 1)) == 2
        assert everything(tmp_path) == [0, 1, 2]
    assert append(tmp_path, 1) == 4


def test_a_block_of_which_the_disk_took_only_a_part_is_taken_back(tmp_path: Path) -> None:
    class FullDisk:
        """Takes ten bytes, then no more."""

        def __init__(self, file: object) -> None:
            self._file, self._taken = file, False

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def write(self, data: memoryview) -> int:
            if self._taken:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._taken = True
            return int(self._file.write(data[:10]))  # type: ignore[attr-defined]

    with LogWriter(tmp_path) as log:
        log.append(records(0, 2))
        appender: Any = log._appender
        real = appender._file
        appender._file = FullDisk(real)
        with pytest.raises(OSError, match="No space left"):
            log.append(records(90, 3))
        appender._file = real
        log.append(records(2, 1))
    assert everything(tmp_path) == [0, 1, 2]
