"""A damaged log is refused in clear words; what a crash tore off the end is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.broker.storage.log.publication_logs import append, everything, numbers, records

from lavant.broker.storage.log import LogReader, LogWriter, blocks
from lavant.core.errors import CorruptSnapshot

FIELDS = {"magic": 0, "header checksum": 4, "body checksum": 8, "length": 12, "first offset": 16, "publications": 24}


def flip(file: Path, position: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1 << bit
    file.write_bytes(data)


def positions(file: Path) -> list[int]:
    """Where the blocks of a file begin."""
    return [block.position - blocks.HEADER.size for block in blocks.scan_blocks(file)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    append(tmp_path, 2, 3, 1)
    (only,) = blocks.files_of(tmp_path)
    return only


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_damaged_header_is_refused_and_nothing_is_cut_off(file: Path, block: int, field: str, bit: int) -> None:
    """Above all the length: a longer block must not pass for one that a crash has torn."""
    position = positions(file)[block]
    flip(file, position + FIELDS[field], bit)
    size = file.stat().st_size
    with pytest.raises(CorruptSnapshot, match=f"is damaged at byte {position}: .*; restore the file from a copy"):
        LogReader(file.parent).end()
    with pytest.raises(CorruptSnapshot, match=f"is damaged at byte {position}: "):
        LogWriter(file.parent)
    assert file.stat().st_size == size


def test_a_damaged_body_with_others_behind_it_is_refused_and_nothing_is_cut_off(file: Path) -> None:
    body = positions(file)[1] + blocks.HEADER.size
    flip(file, body + 100)
    size = file.stat().st_size
    with pytest.raises(CorruptSnapshot, match=rf"damaged at byte {body} \(publication 2\): the checksum differs"):
        LogWriter(file.parent)
    reader = LogReader(file.parent)
    with pytest.raises(CorruptSnapshot, match=rf"damaged at byte {body} \(publication 2\)"):
        numbers(reader, 0, 6)
    assert numbers(reader, 0, 2) == [0, 1]  # what is not damaged can be saved
    assert numbers(reader, 5, 6) == [5]
    assert file.stat().st_size == size


@pytest.mark.parametrize("file_bytes_max", [1, 1 << 20])
def test_a_torn_end_is_cut_off_at_every_byte_and_nothing_before_it_is_lost(tmp_path: Path, file_bytes_max: int) -> None:
    append(tmp_path, 2, 3, 1, file_bytes_max=file_bytes_max)
    last = blocks.files_of(tmp_path)[-1]
    whole, start = last.read_bytes(), positions(last)[-1]
    for length in range(start, len(whole)):
        last.write_bytes(whole[:length])
        with LogWriter(tmp_path, durable=False) as log:
            assert (log.end, last.stat().st_size) == (5, start)
    assert everything(tmp_path) == [0, 1, 2, 3, 4]


def test_a_last_block_whose_pages_did_not_all_reach_the_disk_is_cut_off(file: Path) -> None:
    start = positions(file)[2]
    data = file.read_bytes()
    torn = start + blocks.HEADER.size + 20
    file.write_bytes(data[:torn] + bytes(len(data) - torn))
    with LogWriter(file.parent) as log:
        assert log.end == 5
        assert file.stat().st_size == start
        log.append(records(5, 2))
    assert everything(file.parent) == list(range(7))


def test_a_torn_block_is_written_over_and_a_reader_that_waited_goes_on(file: Path) -> None:
    reader = LogReader(file.parent)
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    assert reader.end() == 5
    append(file.parent, 4)
    assert numbers(reader, 0, reader.end()) == list(range(9))


def test_a_file_that_is_no_log_is_refused_and_kept(tmp_path: Path) -> None:
    foreign = tmp_path / blocks.file_name(0)
    foreign.write_text("something that somebody else put here, and may want to have back")
    with pytest.raises(CorruptSnapshot, match="no block starts there"):
        LogWriter(tmp_path)
    assert foreign.read_text().startswith("something")


def test_a_missing_file_is_noticed(tmp_path: Path) -> None:
    append(tmp_path, 2, 3, 1, file_bytes_max=1)
    blocks.files_of(tmp_path)[1].unlink()
    with pytest.raises(
        CorruptSnapshot, match=f"from publication 2 to 5 in {blocks.file_name(5)}: publications are missing"
    ):
        LogReader(tmp_path).end()


def test_a_file_in_the_middle_that_is_cut_short_is_noticed(tmp_path: Path) -> None:
    append(tmp_path, 2, 3, 1, file_bytes_max=1)
    middle = blocks.files_of(tmp_path)[1]
    middle.write_bytes(middle.read_bytes()[:-1])
    with pytest.raises(CorruptSnapshot, match="from publication 2 to 5"):
        LogReader(tmp_path).end()
