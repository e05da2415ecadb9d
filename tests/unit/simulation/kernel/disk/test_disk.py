"""The simulated disk keeps what was synced, loses what was not, takes its time, fills up, errs and is struck."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lavant.broker.storage.journal.disk import Disk
from lavant.core.errors import InvalidValue, StorageFull
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.disk.disk import SLOWED_US_MAX, Crash, DiskConfig, SimulatedDisk
from lavant.simulation.kernel.distributions import Constant

WRITE_US, SYNC_US = 10, 100
CONFIG = DiskConfig(write_us=Constant(WRITE_US), sync_us=Constant(SYNC_US), bytes_per_s=1_000_000_000)
SEEDS = range(60)


def new_disk(seed: int = 1, config: DiskConfig = CONFIG) -> SimulatedDisk:
    return SimulatedDisk(SimulationContext(seed), "host", config)


def test_it_is_a_disk_for_the_journal() -> None:
    disk: Disk = new_disk()
    disk.create("b", 8)
    disk.replace("a", [b"con", b"tent"])
    disk.write("b", 2, b"xy")
    disk.sync("b")
    assert disk.names() == ["a", "b"]
    assert (disk.read("a"), disk.read("a", 3), disk.read("a", 1, 3), disk.read("a", 5, 99)) == (
        b"content",
        b"tent",
        b"ont",
        b"nt",
    )
    assert disk.read("b") == b"\0\0xy\0\0\0\0"
    disk.remove("a")
    assert disk.names() == ["b"]


def test_what_was_synced_survives_and_what_was_not_may_not() -> None:
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.create("log", 1024)
        disk.write("log", 0, b"synced")
        disk.sync("log")
        disk.write("log", 600, b"unsynced")
        assert disk.durable("log")[600:608] == bytes(8)
        disk.lose_power()
        assert disk.content("log")[:6] == b"synced"
        found.add(disk.content("log")[600:608])
    assert found == {b"unsynced", bytes(8)}


def test_a_sync_is_of_one_file() -> None:
    disk = new_disk()
    for name in ("a", "b"):
        disk.create(name, 8)
        disk.write(name, 0, b"written")
    disk.sync("a")
    assert (disk.durable("a"), disk.durable("b")) == (b"written\0", bytes(8))


def test_a_sync_that_ends_later_does_not_cover_what_was_written_after_its_beginning() -> None:
    disk = new_disk()
    disk.create("log", 8)
    first = disk.begin_write("log", 0, b"1")
    disk.begin_write("log", 1, b"2")
    disk.settle("log", first)
    assert disk.durable("log")[:2] == b"1\0"


def test_files_that_were_created_or_replaced_are_durable_with_their_names() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.create("a", 10)
        disk.replace("b", [b"old"])
        disk.replace("b", [b"new"])
        disk.lose_power()
        assert (disk.names(), disk.content("b")) == (["a", "b"], b"new")


def test_a_removed_file_may_be_back_until_the_directory_is_synced() -> None:
    backs: set[bool] = set()
    gones: set[bool] = set()
    for seed in SEEDS:
        for is_synced, seen in ((False, backs), (True, gones)):
            disk = new_disk(seed)
            disk.create("a", 10)
            disk.remove("a")
            if is_synced:
                disk.create("other", 1)
            disk.lose_power()
            seen.add("a" in disk.names())
    assert (backs, gones) == ({True, False}, {False})


def test_a_removed_file_does_not_come_back_over_a_new_one() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.replace("a", [b"old"])
        disk.remove("a")
        disk.replace("a", [b"new"])
        disk.lose_power()
        assert disk.content("a") == b"new"


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_operations_take_their_time_one_after_the_other() -> None:
    stage = SimulationContext(1)
    disk = SimulatedDisk(stage, "host", CONFIG)
    disk.create("log", 1_000_000)
    assert disk.take_elapsed_us() == SYNC_US + 1000
    stage.calendar.now_us = 10_000
    disk.write("log", 0, bytes(500_000))
    disk.sync("log")
    assert disk.take_elapsed_us() == WRITE_US + 500 + SYNC_US
    assert disk.take_elapsed_us() == 0


def test_a_commit_waits_for_the_one_before() -> None:
    disk = new_disk()
    assert [disk.commit_us(0) for _ in range(3)] == [110, 220, 330]


def test_an_operation_waits_for_a_commit_that_is_under_way() -> None:
    disk = new_disk()
    disk.create("log", 0)
    disk.take_elapsed_us()
    done_us = disk.commit_us(0)
    disk.sync("log")
    assert disk.take_elapsed_us() == done_us + SYNC_US


def test_a_slow_disk_is_slow_until_it_is_healed() -> None:
    disk = new_disk()
    disk.slowness = 10
    assert disk.commit_us(0) == 1100
    disk.slowness = 10**9
    assert disk.commit_us(0) == 1100 + SLOWED_US_MAX
    disk.heal()
    assert disk.commit_us(0) == 110


def test_looking_takes_no_time() -> None:
    disk = new_disk()
    disk.replace("a", [bytes(1_000_000)])
    disk.take_elapsed_us()
    disk.content("a")
    disk.durable("a")
    assert disk.take_elapsed_us() == 0
    disk.read("a")
    assert disk.take_elapsed_us() > 0


# ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_new_files_and_goes_on_writing_into_old_ones() -> None:
    disk = new_disk()
    disk.create("log", 100)
    disk.fill()
    growths: list[Callable[[], None]] = [lambda: disk.create("more", 1), lambda: disk.replace("log", [b"x"])]
    for grow in growths:
        with pytest.raises(StorageFull, match=r"disk host has 0 bytes left, .* needs 1; make room"):
            grow()
    disk.write("log", 0, b"fits")
    disk.sync("log")
    assert (disk.names(), disk.content("log")[:4]) == (["log"], b"fits")
    disk.make_room()
    disk.create("more", 1)


def test_a_disk_has_the_room_that_it_is_given() -> None:
    disk = new_disk(config=DiskConfig(capacity_bytes=100))
    disk.create("a", 60)
    with pytest.raises(StorageFull, match="40 bytes left, b needs 41"):
        disk.create("b", 41)
    disk.create("b", 40)
    assert disk.used_bytes == 100


def test_a_disk_with_an_error_takes_nothing() -> None:
    disk = new_disk()
    disk.create("log", 10)
    disk.error = "input/output error"
    operations: list[Callable[[], None]] = [
        lambda: disk.write("log", 0, b"x"),
        lambda: disk.sync("log"),
        lambda: disk.create("more", 1),
        lambda: disk.replace("more", [b"x"]),
    ]
    for operation in operations:
        with pytest.raises(OSError, match="disk host: input/output error"):
            operation()
    assert (disk.names(), disk.content("log")) == (["log"], bytes(10))
    disk.repair()
    disk.write("log", 0, b"x")


def test_a_flipped_bit_is_damage_that_lasts() -> None:
    disk = new_disk()
    disk.replace("a", [b"\x00\x00"])
    disk.flip_bit("a", 1, 3)
    disk.lose_power()
    assert disk.content("a") == b"\x00\x08"


def struck(operation: Callable[[SimulatedDisk], None], look: Callable[[SimulatedDisk], object]) -> set[object]:
    """What is there after a loss of power in the middle of an operation, over many seeds."""
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.create("log", 1024)
        disk.replace("old", [b"old"])
        disk.strike_in(1, power=True)
        with pytest.raises(Crash) as crash:
            operation(disk)
        assert crash.value.power
        disk.lose_power()
        found.add(look(disk))
    return found


def test_a_struck_write_may_be_there_or_not() -> None:
    found = struck(lambda disk: disk.write("log", 0, b"x"), lambda disk: disk.content("log")[:1])
    assert found == {b"x", b"\0"}


def test_a_struck_sync_may_have_worked_or_not() -> None:
    def write_and_sync(disk: SimulatedDisk) -> None:
        disk.begin_write("log", 0, b"x")
        disk.sync("log")

    assert struck(write_and_sync, lambda disk: disk.content("log")[:1]) == {b"x", b"\0"}


def test_a_struck_create_leaves_nothing_or_a_part() -> None:
    sizes = struck(
        lambda disk: disk.create("new", 1000), lambda disk: disk.size("new") if "new" in disk.names() else None
    )
    assert None in sizes
    parts = [size for size in sizes if isinstance(size, int)]
    assert len(parts) > 5
    assert max(parts) < 1000


def test_a_struck_replacement_is_the_old_file_or_the_new_one() -> None:
    found = struck(lambda disk: disk.replace("old", [b"new"]), lambda disk: disk.content("old"))
    assert found == {b"old", b"new"}


def test_a_struck_removal_has_happened_or_not() -> None:
    assert struck(lambda disk: disk.remove("old"), lambda disk: "old" in disk.names()) == {True, False}


def test_strikes_count_operations_one_strike_after_the_other() -> None:
    disk = new_disk()
    disk.create("log", 10)
    disk.strike_in(2, power=True)
    disk.strike_in(1, power=False)
    disk.write("log", 0, b"x")
    with pytest.raises(Crash) as first:
        disk.write("log", 0, b"x")
    with pytest.raises(Crash) as second:
        disk.write("log", 0, b"x")
    assert (first.value.power, second.value.power) == (True, False)
    disk.write("log", 0, b"x")


def test_a_crash_is_no_error_that_code_could_take_for_its_own() -> None:
    assert not issubclass(Crash, Exception)


def test_a_healed_disk_is_not_struck() -> None:
    disk = new_disk()
    disk.strike_in(1, power=True)
    disk.heal()
    disk.create("log", 10)


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("position", [-1, 5])
def test_a_write_beyond_a_file_is_refused(position: int) -> None:
    disk = new_disk()
    disk.create("log", 8)
    with pytest.raises(
        InvalidValue, match=f"4 bytes at {position} exceeds file log of 8 bytes; create it large enough"
    ):
        disk.write("log", position, b"abcd")


def test_files_that_are_not_there_and_names_that_are_taken_are_errors() -> None:
    disk = new_disk()
    operations: list[Callable[[], object]] = [
        lambda: disk.read("log"),
        lambda: disk.write("log", 0, b""),
        lambda: disk.sync("log"),
        lambda: disk.remove("log"),
    ]
    for operation in operations:
        with pytest.raises(FileNotFoundError, match="disk host has no such file"):
            operation()
    disk.create("log", 1)
    with pytest.raises(FileExistsError):
        disk.create("log", 1)
