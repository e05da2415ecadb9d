"""A block holds its records, is known when it is whole, and when it is not, tells torn from damaged."""

from __future__ import annotations

import pytest
from tests.unit.broker.storage.journal.journals import ID

from lavant.broker.storage.journal import SECTOR_BYTES
from lavant.broker.storage.journal.blocks import (
    HEADER_BYTES,
    apply_mask,
    block_bytes,
    decode_block,
    encode_block,
    find_header,
    hide,
    is_empty,
    is_hollow,
    is_torn,
    read_block,
    read_header,
)

HOLLOW = [
    bytes(2 * SECTOR_BYTES),
    bytes(700) + b"\x01" + bytes(700),
    b"\x80" + bytes(5 * SECTOR_BYTES) + b"end",
]
CASES = [[b"one"], [b""], [b"", b""], [b"a", b"bc", b"", b"def" * 400], [b"x" * 5000], [b"y" * 100] * 200, HOLLOW]


def decoded(data: bytes, offset: int = 0, first: int = 1) -> list[bytes]:
    block = read_block(data, offset, first=first, journal_id=ID)
    assert block is not None
    return decode_block(data, block, ID)


def is_thin(sector: bytes) -> bool:
    """So few bits that one flipped one could leave none."""
    return int.from_bytes(sector, "big").bit_count() < 2


@pytest.mark.parametrize("records", CASES)
def test_records_come_back_in_order(records: list[bytes]) -> None:
    data = encode_block(records, 1, ID)
    assert decoded(data) == records
    assert decoded(bytes(SECTOR_BYTES) + data, SECTOR_BYTES) == records


@pytest.mark.parametrize("records", CASES)
def test_a_block_fills_whole_sectors_and_ends_in_filler(records: list[bytes]) -> None:
    data = encode_block(records, 1, ID)
    assert len(data) == block_bytes(len(records), sum(map(len, records)))
    assert len(data) % SECTOR_BYTES == 0
    assert data[-1] == 0xFF


@pytest.mark.parametrize("length", range(SECTOR_BYTES - HEADER_BYTES - 4 - 3, SECTOR_BYTES - HEADER_BYTES - 4 + 3))
def test_there_is_filler_whatever_the_length(length: int) -> None:
    data = encode_block([b"r" * length], 1, ID)
    assert data[-1] == 0xFF
    assert len(data) == (SECTOR_BYTES if length < SECTOR_BYTES - HEADER_BYTES - 4 else 2 * SECTOR_BYTES)
    assert decoded(data) == [b"r" * length]


@pytest.mark.parametrize("records", [*CASES, *([record] for record in HOLLOW)])
def test_no_sector_of_a_block_could_lose_all_its_bits_by_one_flip(records: list[bytes]) -> None:
    data = encode_block(records, 1, ID)
    sectors = [data[i : i + SECTOR_BYTES] for i in range(0, len(data), SECTOR_BYTES)]
    assert [i for i, sector in enumerate(sectors) if is_thin(sector)] == []


@pytest.mark.parametrize("position", [0, 1, 255, 256, 511])
def test_a_sector_with_a_single_bit_is_hollow(position: int) -> None:
    sector = bytearray(SECTOR_BYTES)
    sector[position] = 4
    assert is_hollow(bytes(sector))


def test_a_body_that_resembles_a_mask_gets_another() -> None:
    once = apply_mask(bytes(4 * SECTOR_BYTES), 1, ID)
    mask, hidden = hide(once, ID)
    assert mask == 2
    assert apply_mask(hidden, mask, ID) == once


def test_masks_of_two_journals_differ() -> None:
    assert apply_mask(bytes(SECTOR_BYTES), 1, ID) != apply_mask(bytes(SECTOR_BYTES), 1, ID + 1)


def test_only_the_block_that_is_wanted_is_read() -> None:
    data = encode_block([b"a", b"b"], 7, ID)
    assert read_block(data, 0, first=7, journal_id=ID) is not None
    assert read_block(data, 0, first=6, journal_id=ID) is None
    assert read_block(data, 0, first=7, journal_id=ID + 1) is None
    assert read_block(data, len(data), first=7, journal_id=ID) is None


@pytest.mark.parametrize("records", [[b"a", b"bc"], [b"z" * 600]])
def test_any_flipped_bit_is_noticed_and_never_taken_for_torn(records: list[bytes]) -> None:
    whole = encode_block(records, 1, ID)
    filled = HEADER_BYTES + 4 * len(records) + sum(map(len, records))
    for position in range(filled):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            assert read_block(bytes(data), 0, first=1, journal_id=ID) is None, (position, bit)
            assert not is_torn(bytes(data), 0, read_header(bytes(data), 0)), (position, bit)


def test_any_missing_sectors_are_taken_for_torn() -> None:
    whole = encode_block([b"q" * 1200, *HOLLOW], 1, ID)
    sectors = len(whole) // SECTOR_BYTES
    for missing in range(1, 1 << sectors):
        data = bytearray(whole)
        for sector in range(sectors):
            if missing >> sector & 1:
                data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
        assert read_block(bytes(data), 0, first=1, journal_id=ID) is None
        assert is_torn(bytes(data), 0, read_header(bytes(data), 0)), bin(missing)


def test_a_block_that_ends_at_any_byte_is_taken_for_torn() -> None:
    whole = encode_block([b"q" * 600, b"\0" * 40], 1, ID)
    for length in range(len(whole)):
        data = whole[:length] + bytes(len(whole) - length)
        if length < HEADER_BYTES + 8 + 600:  # behind that only filler is missing, or zeros that are there anyway
            assert read_block(data, 0, first=1, journal_id=ID) is None
        assert is_torn(data, 0, read_header(data, 0)), length


def test_a_file_that_ends_within_a_block_is_not_what_a_crash_leaves() -> None:
    whole = encode_block([b"q" * 600], 1, ID)
    for length in (HEADER_BYTES - 1, HEADER_BYTES, len(whole) - 1):
        data = whole[:length]
        assert read_block(data, 0, first=1, journal_id=ID) is None
        assert not is_torn(data, 0, read_header(data, 0))


def test_zeros_are_known_at_any_length() -> None:
    for length in (0, 1, 7, 8, 9, 512, 1000):
        assert is_empty(b"x" * 512 + bytes(length), 512)
    for position in (512, 519, 600, 999, 1000):
        data = bytearray(1001)
        data[position] = 1
        assert not is_empty(bytes(data), 512)


def test_later_blocks_are_found_and_others_are_not() -> None:
    ours, other = encode_block([b"a"], 9, ID), encode_block([b"a"], 9, ID + 1)
    gap = bytes(3 * SECTOR_BYTES)
    assert find_header(gap + ours, 0, ID, 9) == len(gap)
    assert find_header(gap + ours, 0, ID, 10) is None
    assert find_header(gap + ours, len(gap) + 1, ID, 1) is None
    assert find_header(gap + other + ours, 0, ID, 1) == len(gap + other)
    assert find_header(gap + b"x" + ours, 0, ID, 1) is None, "blocks start at sectors"
    assert find_header(gap + ours[:20] + bytes(492), 0, ID, 1) is None
