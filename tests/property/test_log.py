"""The publication log against a list: whatever is torn off or reopened, what was confirmed is there, in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.storage.log.publication_logs import append, everything, numbers, records

from lavant.broker.storage.log import LogReader, LogWriter, blocks
from lavant.core.errors import CorruptSnapshot

COUNTS = st.lists(st.integers(1, 4), min_size=1, max_size=6)
FILE_BYTES = st.sampled_from([1, 1500, 1 << 20])


@given(counts=COUNTS, file_bytes_max=FILE_BYTES, again=st.integers(1, 3), data=st.data())
def test_a_torn_end_is_cut_off_and_nothing_before_it_is_lost(
    counts: list[int], file_bytes_max: int, again: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        end = append(directory, *counts, file_bytes_max=file_bytes_max)
        file = blocks.files_of(directory)[-1]
        whole = file.read_bytes()
        before = end - counts[-1]
        start = [block.position - blocks.HEADER.size for block in blocks.scan_blocks(file)][-1]
        file.write_bytes(whole[: data.draw(st.integers(start, len(whole) - 1), "torn at")])
        assert LogReader(directory).end() == before
        with LogWriter(directory, durable=False, file_bytes_max=file_bytes_max) as log:
            assert log.end == before
            assert file.stat().st_size == start
        append(directory, again, file_bytes_max=file_bytes_max)
        assert everything(directory) == list(range(before + again))


@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=5), data=st.data())
def test_a_flipped_bit_before_the_last_block_is_never_passed_over(counts: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        end = append(directory, *counts)
        (file,) = blocks.files_of(directory)
        last = [block.position - blocks.HEADER.size for block in blocks.scan_blocks(file)][-1]
        damaged = bytearray(file.read_bytes())
        damaged[data.draw(st.integers(0, last - 1), "byte")] ^= 1 << data.draw(st.integers(0, 7), "bit")
        file.write_bytes(damaged)
        with pytest.raises(CorruptSnapshot, match="is damaged at byte"):
            LogWriter(directory)
        with pytest.raises(CorruptSnapshot, match="is damaged at byte"):
            numbers(LogReader(directory), 0, end)
        assert file.read_bytes() == damaged


STEPS = st.lists(st.one_of(st.integers(1, 5), st.sampled_from(["tear", "look"])), max_size=15)


@given(steps=STEPS, file_bytes_max=FILE_BYTES, data=st.data())
def test_a_log_is_a_list_that_only_grows(steps: list[int | str], file_bytes_max: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        reader = LogReader(directory)
        expected = 0
        for step in steps:
            if isinstance(step, int):
                assert append(directory, *[1] * step, step, file_bytes_max=file_bytes_max) == expected + 2 * step
                expected += 2 * step
            elif step == "look":
                assert reader.end() == expected
                start = data.draw(st.integers(0, expected), "start")
                end = data.draw(st.integers(start, expected), "end")
                assert numbers(reader, start, end) == list(range(start, end))
            elif expected:  # the writer was killed in the middle of its next append
                block = blocks.encode_block(records(expected, 2), expected)
                torn = block[: data.draw(st.integers(0, len(block) - 1), "torn at")]
                with blocks.files_of(directory)[-1].open("r+b") as file:
                    file.truncate([0, *(b.position + b.length for b in blocks.scan_blocks(Path(file.name)))][-1])
                    file.seek(0, 2)
                    file.write(torn)
        assert numbers(reader, 0, reader.end()) == everything(directory) == list(range(expected))


@given(counts=COUNTS, file_bytes_max=FILE_BYTES, data=st.data())
def test_trimming_frees_only_what_lies_before_the_offset_and_readers_go_on(
    counts: list[int], file_bytes_max: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        end = append(directory, *counts, file_bytes_max=file_bytes_max)
        known, again = LogReader(directory), data.draw(st.integers(1, 3), "again")
        known.end()
        offset = data.draw(st.integers(0, end), "offset")
        with LogWriter(directory, durable=False, file_bytes_max=file_bytes_max) as log:
            log.trim(offset)
            assert log.append(records(end, again)) == end
        for reader in (known, LogReader(directory)):
            assert reader.end() == end + again
            assert numbers(reader, offset, end + again) == list(range(offset, end + again))
        files = blocks.files_of(directory)
        assert all(int(path.stem) > offset for path in files[1:])  # none but the first is wholly behind the offset


@given(counts=COUNTS, file_bytes_max=FILE_BYTES, data=st.data())
def test_what_was_not_confirmed_can_be_taken_back(counts: list[int], file_bytes_max: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        append(directory, *counts, file_bytes_max=file_bytes_max)
        kept = data.draw(st.integers(0, len(counts)), "kept")
        offset = sum(counts[:kept])
        with LogWriter(directory, durable=False, file_bytes_max=file_bytes_max) as log:
            log.cut(offset)
            assert log.end == offset
            log.append(records(offset, 2))
        assert everything(directory) == list(range(offset + 2))


def test_a_log_that_ends_too_early_is_damaged(tmp_path: Path) -> None:
    append(tmp_path, 2)
    with LogWriter(tmp_path) as log, pytest.raises(CorruptSnapshot, match="should continue at publication 3"):
        log.cut(3)
