"""Batches that follow the log: each publication in one range, ranges finished in order, lost ones repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.workload import expected, filters, rows

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.blocks import LogBatch
from lavant.broker.storage.objects import open_storage
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.operators.access import AccessBlock, encode_range
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.stream.log_ranges import (
    FOLLOW_S,
    IDLE_S,
    PORTION_S,
    AssignedRange,
    BatchRange,
    FollowedBatch,
    FollowLimits,
    RangeClient,
    RangeDispatcher,
    RangeReport,
    match_assigned,
)
from lavant.pipeline.stream.sinks import read_part

TEXTS = dict(enumerate(filters(200)))
WAIT_S_MAX = 30.0
KNOWN = BatchRange(0, 10, 2)


LIMITS = FollowLimits(follows=True, has_room=True, waiting_max=100, portion_rows=80, task_rows=1)


def batch_of(known: BatchRange, limits: FollowLimits = LIMITS) -> FollowedBatch:
    return FollowedBatch(known, 0.0, limits, follow_s=FOLLOW_S, idle_s=IDLE_S)


def taken(batch: FollowedBatch) -> list[tuple[int, int]]:
    return list(iter(batch.take, None))


@given(
    known=st.integers(1, 90),
    tasks=st.integers(1, 4),
    task_rows=st.integers(1, 50),
    looks=st.lists(st.tuples(st.floats(0.0, 0.1), st.integers(0, 60), st.booleans(), st.integers(1, 80))),
)
def test_ranges_follow_each_other_and_no_batch_ends_before_what_spark_knows(
    known: int, tasks: int, task_rows: int, looks: list[tuple[float, int, bool, int]]
) -> None:
    limits = LIMITS._replace(task_rows=task_rows)
    batch = batch_of(BatchRange(7, 7 + known, tasks), limits)
    log_end, now_s = 7 + known, 0.0
    ranges = taken(batch)
    assert ranges[-1][1] == log_end
    for pause_s, appended, has_room, portion_rows in looks:
        log_end, now_s = log_end + appended, now_s + pause_s
        batch.look(log_end, now_s, limits._replace(has_room=has_room, portion_rows=portion_rows))
        found = taken(batch)
        assert len(found) <= (tasks if has_room else 0)
        assert sum(end - start for start, end in found) <= portion_rows
        ranges += found
    assert [start for start, _ in ranges] == [7, *(end for _, end in ranges[:-1])]
    assert all(start < end for start, end in ranges)
    assert batch.position == ranges[-1][1] <= log_end
    assert batch.ended or log_end - batch.position <= 100


def test_what_is_found_is_divided_if_that_is_worth_it() -> None:
    assert taken(batch_of(BatchRange(0, 90, 3), LIMITS._replace(task_rows=30))) == [(0, 30), (30, 60), (60, 90)]
    assert taken(batch_of(BatchRange(0, 90, 3), LIMITS._replace(task_rows=40))) == [(0, 45), (45, 90)]
    assert taken(batch_of(BatchRange(0, 90, 3), LIMITS._replace(task_rows=100))) == [(0, 90)]


def test_a_portion_comes_after_a_pause() -> None:
    batch = batch_of(BatchRange(0, 10, 1))
    assert taken(batch) == [(0, 10)]
    batch.look(20, PORTION_S / 2, LIMITS)
    assert taken(batch) == []
    batch.look(25, PORTION_S, LIMITS)
    assert taken(batch) == [(10, 25)]


@pytest.mark.parametrize(
    ("limits", "log_end", "now_s", "ends"),
    [
        (LIMITS, 10, IDLE_S / 2, False),
        (LIMITS, 10, IDLE_S, True),
        (LIMITS, 20, IDLE_S, False),
        (LIMITS, 20, FOLLOW_S, True),
        (LIMITS, 111, PORTION_S, True),
        (LIMITS._replace(follows=False), 20, 0.0, True),
        (LIMITS._replace(has_room=False), 20, IDLE_S, False),
        (LIMITS._replace(has_room=False), 20, FOLLOW_S, True),
    ],
    ids=["waits", "idle", "goes on", "long", "backlog", "others wait", "slow sink", "sink too slow"],
)
def test_a_batch_ends(limits: FollowLimits, log_end: int, now_s: float, ends: bool) -> None:
    batch = batch_of(BatchRange(0, 10, 1))
    taken(batch)
    batch.look(log_end, now_s, limits)
    assert batch.ended is ends


class World:
    """A dispatcher, and what it gave and got."""

    def __init__(self, directory: Path, idle_s: float) -> None:
        self.error: Exception | None = None
        """Of the driver, when it is to make a range."""
        self.log = directory / "log"
        self.finished: list[tuple[int, int]] = []
        self.failures: list[BaseException] = []
        self.numbers = iter(range(1000))
        self.append(10)
        self.dispatcher = RangeDispatcher(
            directory / "ranges",
            LogReader(self.log),
            assign=self.assign,
            finish=lambda assigned, report: self.finished.append((assigned.start, report.block.end)),
            fail=self.failures.append,
            limits=lambda: LIMITS._replace(waiting_max=1000, task_rows=5),
            follow_s=2 * WAIT_S_MAX,
            idle_s=idle_s,
        )

    def append(self, count: int) -> None:
        with LogWriter(self.log, durable=False) as log:
            log.append(PublicationBatch.from_dicts([{"price": each} for each in range(count)]).records)

    def assign(self, start: int, end: int) -> AssignedRange:
        if self.error is not None:
            raise self.error
        return AssignedRange(
            number=next(self.numbers),
            start=start,
            end=end,
            store=SlicePlace("store", "", "plain"),
            version=StoreVersion(0, (0,), (0,)),
            output="",
            run="run",
        )

    def task(self, known: BatchRange = KNOWN) -> RangeClient:
        return RangeClient(self.dispatcher.address, known)


def report_of(assigned: AssignedRange | None) -> RangeReport:
    assert assigned is not None
    return RangeReport(AccessBlock(assigned.start, assigned.end - assigned.start, "log", [], []), [])


def eventually(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.005)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Its batches end when the dispatcher does, however slow the machine is, or after a time that the test gives."""
    made = World(tmp_path, getattr(request, "param", 2 * WAIT_S_MAX))
    yield made
    made.dispatcher.close()
    assert not made.failures


def test_ranges_are_finished_in_order_whichever_task_is_first(world: World) -> None:
    with world.task() as one:
        first = one.next()
        with world.task() as two:
            two.report(report_of(two.next()))
            world.append(7)
            third = two.next()
            assert third is not None
            assert (third.start, third.end) == (10, 17)
            assert world.finished == []
            one.report(report_of(first))
            eventually(lambda: world.finished == [(0, 5), (5, 10)])
            two.report(report_of(third))
            eventually(lambda: world.finished == [(0, 5), (5, 10), (10, 17)])
    assert world.dispatcher.position == 17


@pytest.mark.parametrize("world", [IDLE_S], indirect=True)
def test_a_batch_without_anything_new_ends_for_all_tasks(world: World) -> None:
    with world.task() as one, world.task() as two:
        reports = [(task, report_of(task.next())) for task in (one, two)]
        for task, report in reports:
            task.report(report)
        assert one.next() is None
        assert two.next() is None
    assert world.finished == [(0, 5), (5, 10)]


def test_the_range_of_a_task_that_is_lost_is_given_to_another(world: World) -> None:
    with world.task() as lost:
        assert lost.next() is not None
    with world.task() as other:
        found = []
        for _ in range(2):
            assigned = other.next()
            assert assigned is not None
            found.append((assigned.number, assigned.start, assigned.end))
            other.report(report_of(assigned))
    assert sorted(found) == [(0, 0, 5), (1, 5, 10)]
    eventually(lambda: world.finished == [(0, 5), (5, 10)])


@pytest.mark.parametrize("world", [IDLE_S], indirect=True)
def test_a_task_of_a_batch_that_is_over_gets_nothing(world: World) -> None:
    world.append(10)
    with world.task(BatchRange(10, 20, 1)) as task:
        task.report(report_of(task.next()))
        assert task.next() is None
    with world.task() as late:
        assert late.next() is None
    assert world.dispatcher.position == 20


def test_a_dispatcher_that_ends_waits_for_what_tasks_have(world: World) -> None:
    with world.task() as task:
        first = task.next()
        ending = threading.Thread(target=world.dispatcher.end)
        ending.start()
        task.report(report_of(first))
        assert task.next() is None
    ending.join(WAIT_S_MAX)
    assert world.finished == [(0, 5)]


def test_what_goes_wrong_in_the_driver_is_not_taken_for_a_lost_task(world: World) -> None:
    world.error = RuntimeError("no such version")
    with world.task() as task, pytest.raises(EOFError):
        task.next()
    eventually(lambda: world.failures == [world.error])
    world.failures.clear()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SliceReader:
    store = SliceStore.create(tmp_path_factory.mktemp("store") / "subscriptions", slices=5)
    store.add(range(200), filters(200))
    return SliceReader(store.directory)


@pytest.mark.parametrize(("exit_ids", "parts"), [(10**6, 1), (1000, 2), (1, 40)], ids=["one part", "some", "most"])
def test_what_a_range_finds_is_what_brute_force_says(
    reader: SliceReader, tmp_path: Path, exit_ids: int, parts: int
) -> None:
    publications = rows(40, seed=3)
    block = encode_range("plain", "log", 7, [LogBatch(7, PublicationBatch.from_dicts(publications).records)])
    assigned = AssignedRange(
        number=3,
        start=7,
        end=47,
        store=SlicePlace(reader.address, reader.identity, "plain"),
        version=reader.version(),
        output=str(tmp_path),
        run="run",
    )
    report = match_assigned(assigned, block, exit_ids)
    assert len(report.exits) == parts
    assert (report.block.start, report.block.end, report.block.pieces) == (7, 47, [])
    assert sum(probe.publications for each in report.exits for probe in each.probes) == 5 * 40
    written = [read_part(open_storage(tmp_path), each.part).to_pylist() for each in report.exits if each.part.rows]
    found = {row["id"]: sorted(row["subscriptions"]) for part in written for row in part}
    assert found == expected(TEXTS, publications)
