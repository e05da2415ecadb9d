"""The manifest comes back as it was, is never believed when damaged, and says when it is of another format."""

from __future__ import annotations

import pytest

from lavant.broker.storage.journal.config import DEFAULT, JournalConfig
from lavant.broker.storage.journal.manifest import (
    JournalManifest,
    decode_manifest,
    is_segment,
    is_snapshot,
    segment_name,
    snapshot_name,
)
from lavant.core.errors import CorruptJournal

MANIFEST = JournalManifest(
    journal_id=2**64 - 1,
    first_segment=4,
    last_segment=6,
    first_position=70_001,
    durable=2**53 + 1,
    snapshot=70_500,
    snapshot_bytes=12,
)


def test_a_manifest_comes_back_and_can_be_read_by_people() -> None:
    assert decode_manifest(MANIFEST.encode(), DEFAULT) == MANIFEST
    assert MANIFEST.encode().startswith(b"lavant-journal 1 ")
    assert b'"first_segment":4,"last_segment":6' in MANIFEST.encode()


def test_no_flipped_bit_is_believed() -> None:
    whole = MANIFEST.encode()
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            with pytest.raises(CorruptJournal):
                decode_manifest(bytes(data), DEFAULT)


def test_no_beginning_is_believed() -> None:
    whole = MANIFEST.encode()
    for length in range(len(whole) - 1):
        with pytest.raises(CorruptJournal, match="is damaged at byte"):
            decode_manifest(whole[:length], DEFAULT)


def test_a_later_format_is_refused_in_words() -> None:
    later = MANIFEST.encode().replace(b"lavant-journal 1 ", b"lavant-journal 2 ")
    with pytest.raises(
        CorruptJournal, match=r"^/d/manifest has format 2, this version of Lavant reads up to format 1; use the"
    ):
        decode_manifest(later, JournalConfig(directory="/d"))


def test_the_names_of_segments_sort_by_their_numbers() -> None:
    numbers = [1, 9, 10, 123_456_789]
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in numbers]
    assert all(is_segment(segment_name(number)) for number in numbers)
    assert not any(map(is_segment, ("manifest", "segment-1", "segment-00000000011", "lock", snapshot_name(1))))
    assert is_snapshot(snapshot_name(1))
