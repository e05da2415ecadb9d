"""What a loss of power leaves: synced contents, and of each unsynced sector one of its versions."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.storage.journal.disk import SECTOR_BYTES
from lavant.simulation.kernel.disk.sectors import SectoredFile, Survival

SECTORS = 4
SIZE = SECTORS * SECTOR_BYTES

writes = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE), st.integers(1, 255)), max_size=8)


def written(file: SectoredFile, work: list[tuple[int, int, int]], first: int = 1) -> list[bytes]:
    """Do the writes, and return the contents before all of them and after each."""
    versions = [bytes(file.content)]
    for number, (position, length, byte) in enumerate(work, start=first):
        file.write(number, position, bytes([byte]) * min(length, SIZE - position))
        versions.append(bytes(file.content))
    return versions


def sector(content: bytes, number: int) -> bytes:
    return content[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES]


@given(work=writes, survival=st.sampled_from(Survival), seed=st.integers(0, 1000))
def test_every_sector_has_one_of_its_versions_after_a_crash(
    work: list[tuple[int, int, int]], survival: Survival, seed: int
) -> None:
    file = SectoredFile(SIZE)
    versions = written(file, work)
    file.lose_power(survival, Random(seed))
    for number in range(SECTORS):
        assert sector(bytes(file.content), number) in [sector(version, number) for version in versions]


@given(before=writes, after=writes, survival=st.sampled_from(Survival), seed=st.integers(0, 1000))
def test_nothing_older_than_the_last_sync_comes_back(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]], survival: Survival, seed: int
) -> None:
    file = SectoredFile(SIZE)
    written(file, before)
    file.settle(len(before))
    versions = written(file, after, first=len(before) + 1)
    file.lose_power(survival, Random(seed))
    for number in range(SECTORS):
        assert sector(bytes(file.content), number) in [sector(version, number) for version in versions]


@given(work=writes, synced=st.integers(0, 8))
def test_a_sync_keeps_the_writes_before_it_and_only_these(work: list[tuple[int, int, int]], synced: int) -> None:
    file = SectoredFile(SIZE)
    versions = written(file, work)
    synced = min(synced, len(work))
    file.settle(synced)
    assert file.durable() == versions[synced]
    file.lose_power(Survival.NOTHING, Random(1))
    assert bytes(file.content) == versions[synced]


@given(work=writes)
def test_everything_can_survive(work: list[tuple[int, int, int]]) -> None:
    file = SectoredFile(SIZE)
    versions = written(file, work)
    assert file.lose_power(Survival.EVERYTHING, Random(1)) == 0
    assert bytes(file.content) == versions[-1]


@given(work=writes, seed=st.integers(0, 1000))
def test_a_beginning_is_some_writes_whole_and_at_most_one_torn(work: list[tuple[int, int, int]], seed: int) -> None:
    file = SectoredFile(SIZE)
    versions = written(file, work)
    file.lose_power(Survival.A_BEGINNING, Random(seed))

    def lies_between(earlier: bytes, later: bytes) -> bool:
        found = bytes(file.content)
        return all(sector(found, n) in (sector(earlier, n), sector(later, n)) for n in range(SECTORS))

    assert any(lies_between(earlier, later) for earlier, later in [*pairwise(versions), (versions[-1], versions[-1])])


def outcomes(survival: Survival) -> set[bytes]:
    """What many crashes leave of two writes to all sectors, a byte a sector."""
    found = set()
    for seed in range(400):
        file = SectoredFile(SIZE)
        file.write(1, 0, b"1" * SIZE)
        file.write(2, 0, b"2" * SIZE)
        file.lose_power(survival, Random(seed))
        found.add(bytes(file.content[::SECTOR_BYTES]))
    return found


def test_anything_is_every_mixture_of_versions() -> None:
    assert len(outcomes(Survival.ANYTHING)) == 3**SECTORS


def test_a_beginning_tears_any_of_the_writes_anywhere() -> None:
    assert len(outcomes(Survival.A_BEGINNING)) == 2 * 2**SECTORS - 1


@pytest.mark.parametrize("survival", list(Survival))
def test_after_a_crash_everything_is_durable(survival: Survival) -> None:
    file = SectoredFile(SIZE)
    file.write(1, 100, b"x" * 1000)
    assert file.sectors_unsynced == 3
    file.lose_power(survival, Random(3))
    assert file.sectors_unsynced == 0
    assert file.durable() == bytes(file.content)
