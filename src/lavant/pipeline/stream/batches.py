"""The batches of a stream: access in the query's own thread, match and exit behind it, the commits in order.

    query    access 1 │ access 2 │ access 3 …
    batch 1           │ match ──► exit ─► commit
    batch 2                      │ match ──► exit ─► commit

So matching of a batch overlaps with the exit of the one before. At most `IN_FLIGHT` batches are on their way; the query
waits for room. If one fails, none behind it is committed.

A small batch takes a shorter way (see `small_batches`):

    query    access and match 1 │ access and match 2 │ …
    driver                      │ exit 1 ─► commit   │ exit 2 ─► commit

And on the driver's own machine, it goes on with what is appended meanwhile (see `log_ranges`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
from pyspark import SparkContext
from pyspark.sql import DataFrame

from lavant.broker.slices import SliceReader
from lavant.broker.slices.layout import ACCESS, MATCH
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.log import LogReader
from lavant.core.errors import FailedStream, LavantError
from lavant.pipeline.cluster.assignment import ANYWHERE, SliceAssignment
from lavant.pipeline.cluster.probes import Probe, ProbeBuffer
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.internals.stages import PlacedTask, run_stages, scan
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.parts import part_name
from lavant.pipeline.operators.tasks import (
    ExitReport,
    ExitTask,
    MatchTask,
    exit_blocks,
    exit_bounds,
)
from lavant.pipeline.operators.travel import SliceTravel, exit_function, match_function
from lavant.pipeline.stream.log_ranges import AssignedRange, FollowLimits, RangeDispatcher, RangeReport
from lavant.pipeline.stream.sinks import BatchManifest, Notifications
from lavant.pipeline.stream.small_batches import ROWS_AT_FIRST, AccessedBlock, BatchPlan, large_rows, task_rows

IN_FLIGHT = 2
RANGES_PER_TASK = 4
"""Of batches that follow the log: not committed yet, for each task. With more, a slow sink would fall ever further
behind, in small files."""
BROADCAST_BYTES_MIN = 512 << 10
"""Fewer bytes travel with the function of the tasks, which is quicker than a broadcast."""

Placement = Callable[[int], SliceAssignment]
"""The assignment for a store with so many slices."""


class Batches:
    """For `foreachBatch`. `output` is the storage that exit tasks write to; None returns the parts to the driver.

    `plan` is the file of the source's plan. If a log is to be `followed`, small batches do.
    """

    def __init__(
        self,
        context: SparkContext,
        *,
        store: SliceReader,
        travel: SliceTravel,
        notifications: Notifications,
        output: str | None,
        placement: Placement,
        plan: Path,
        small_rows_max: int,
        probes: ProbeBuffer | None = None,
        followed: LogReader | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._travel = travel
        self._notifications = notifications
        self._output = output
        self._placement = placement
        self._probes = probes
        self._next = notifications.next_batch
        self._plan_file = plan
        self._plan: BatchPlan | None = None
        self._small_rows_max = small_rows_max
        self._rows_max = ROWS_AT_FIRST
        self._task_rows = self._exits = 1
        self._expect_small = True
        self._slots = threading.Semaphore(IN_FLIGHT)
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "lavant-batch")
        self._last: Future[None] | None = None
        self._behind: Future[None] | None = None
        """The last batch that did not follow the log."""
        self._failure: BaseException | None = None
        self.on_failed: Callable[[], None] = lambda: None
        """Called when a batch has failed behind the query."""
        self._is_stopping = False
        self._ranges: RangeDispatcher | None = None
        if followed is not None and small_rows_max:
            self._ranges = RangeDispatcher(
                plan.with_name("ranges"),
                followed,
                assign=self._assign,
                finish=self._finish_range,
                fail=self._fail,
                limits=self._limits,
            )
        self._plan_batches(self._assignment(store.version()))

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._raise_failure()
        if self._is_stopping:
            return
        if self._probes is not None:
            self._probes.begin()
        try:
            is_under_way = self._begin(rows)
        except BaseException:
            self._end_probes()
            raise
        if not is_under_way:
            self._end_probes()

    def _begin(self, rows: DataFrame) -> bool:
        """Access, and the short way's match; whether there is something to finish behind the query."""
        if self._last is not None and not self._has_room:
            wait([self._last])
            self._raise_failure()
        version = self._store.version()
        assignment = self._assignment(version)
        # A batch is probably like the last one; where its tasks prefer to run depends on it, and nothing else.
        locations = assignment.match_locations if self._expect_small else assignment.access_locations
        scanned = scan(rows, locations, f"lavant access {self._next}")
        accessed = [msgspec.msgpack.decode(each, type=AccessedBlock) for each in scanned]
        accessed = [each for each in accessed if not each.is_done]
        if not accessed:
            self._plan_batches(assignment)
            return False
        self._expect_small = bool(accessed[0].found)
        if any(each.too_much for each in accessed):
            self._small_rows_max = accessed[0].block.count // 2
        self._plan_batches(assignment)
        self._slots.acquire()
        self._raise_failure()
        self._last = self._behind = self._pool.submit(
            self._finish, self._next, accessed, version, assignment, self._last
        )
        self._next += 1
        return True

    def _end_probes(self) -> None:
        if self._probes is not None:
            self._probes.end()

    def stop(self) -> None:
        """Begin no further batch, and end the one that follows the log."""
        self._is_stopping = True
        if self._ranges is not None:
            self._ranges.end()

    def drain(self) -> None:
        """Wait for the batches on their way; raises if one has failed."""
        if self._ranges is not None:
            self._ranges.close()
        self._pool.shutdown(wait=True)
        self._raise_failure()

    def _assignment(self, version: StoreVersion) -> SliceAssignment:
        slices = len(version.slices)
        assignment = self._placement(slices)
        assignment.check(slices, self._store.identity)
        self._exits = len(assignment.exiting)
        return assignment

    def _plan_batches(self, assignment: SliceAssignment) -> None:
        """Tell the source how large batches are, and who matches small ones, if tasks can open the store."""
        if not self._travel.shared:
            return
        plan = BatchPlan(
            store=self._store_here,
            hosts=tuple(host.match for _, host in assignment.matching),
            small_rows_max=self._small_rows_max,
            rows_max=self._rows_max,
            task_rows=self._task_rows if set(assignment.match_locations) <= {ANYWHERE} else 1,
            position=0 if self._ranges is None else self._ranges.position,
            dispatcher=None if self._ranges is None else self._ranges.address,
        )
        if plan != self._plan:
            plan.save(self._plan_file)
            self._plan = plan

    @property
    def _has_room(self) -> bool:
        """Whether the sink keeps up: ranges that are assigned but not committed are few."""
        return self._next - self._notifications.next_batch <= RANGES_PER_TASK * self._exits

    def _limits(self) -> FollowLimits:
        return FollowLimits(
            follows=self._behind is None or self._behind.done(),  # whose tasks need cores, too
            has_room=self._has_room,
            waiting_max=self._small_rows_max,
            portion_rows=self._rows_max,
            task_rows=self._task_rows,
        )

    @property
    def _store_here(self) -> SlicePlace:
        """The store as the driver opens it."""
        return SlicePlace(self._store.address, self._store.identity, self._store.settings.scheme)

    def _assign(self, start: int, end: int) -> AssignedRange:
        """A range for a task of a batch that follows the log."""
        number = self._next
        self._next += 1
        return AssignedRange(
            number=number,
            start=start,
            end=end,
            store=self._store_here,
            version=self._store.version(),
            output=self._notifications.storage.address,
            run=self._notifications.run,
        )

    def _finish_range(self, assigned: AssignedRange, report: RangeReport) -> None:
        self._last = self._pool.submit(self._commit_range, assigned, report, self._last)

    def _commit_range(self, assigned: AssignedRange, report: RangeReport, previous: Future[None] | None) -> None:
        try:
            self._commit(assigned.number, [report.block], [report.block], assigned.version, report.exits, previous)
        except BaseException as error:
            self._fail(error)
            raise

    def _finish(
        self,
        number: int,
        accessed: list[AccessedBlock],
        version: StoreVersion,
        assignment: SliceAssignment,
        previous: Future[None] | None,
    ) -> None:
        """Match and exit, as far as that is not done, and commit."""
        try:
            matched = accessed[0].version
            if matched is not None and all(each.found for each in accessed):
                version = matched
                blocks = [accessed[0].block]
                reports = [self._exit_here(number, accessed, version)]
            else:
                blocks = _in_order(each.block for each in accessed if not each.found)
                reports = self._stages(number, blocks, version, assignment)
            self._commit(number, blocks, [each.block for each in accessed], version, reports, previous)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._end_probes()
            self._slots.release()

    def _commit(
        self,
        number: int,
        blocks: list[AccessBlock],
        read: list[AccessBlock],
        version: StoreVersion,
        reports: list[ExitReport],
        previous: Future[None] | None,
    ) -> None:
        """After the batch before; `read` are the blocks of all tasks, which may have read the same ones."""
        if previous is not None:
            previous.result()
        manifest = _manifest(number, blocks, version, self._store.identity, reports)
        self._notifications.commit(manifest)
        publications = manifest.end - manifest.start
        self._rows_max = large_rows(publications, manifest.matches, self._exits)
        self._task_rows = task_rows(publications, _match_s(reports))
        if self._probes is not None:
            self._probes.put(_access_probes(read, self._store.identity))
            self._probes.put(probe for report in reports for probe in report.probes)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self.on_failed()

    def _exit_here(self, number: int, accessed: list[AccessedBlock], version: StoreVersion) -> ExitReport:
        task = ExitTask(
            store=self._store_here,
            version=version,
            host=0,
            slices=(),
            output=self._notifications.storage.address,
            part=part_name(number, self._notifications.run, 0),
        )
        return exit_blocks(task, [MatchedBlock.from_bytes(found) for each in accessed for found in each.found])

    def _stages(
        self, number: int, blocks: list[AccessBlock], version: StoreVersion, assignment: SliceAssignment
    ) -> list[ExitReport]:
        matching, exiting = assignment.matching, assignment.exiting
        bounds = exit_bounds(sum(block.count for block in blocks), [host.exit for _, host in exiting])
        place, luggage = self._travel.pack(self._store, version)
        encoded = msgspec.msgpack.encode(blocks)
        shared = self._context.broadcast(encoded) if len(encoded) > BROADCAST_BYTES_MIN else None
        matches = [
            PlacedTask(
                host.location,
                msgspec.msgpack.encode(
                    MatchTask(
                        store=place,
                        version=version,
                        host=number_of_host,
                        slices=host.match,
                        exits=bounds,
                    )
                ),
            )
            for number_of_host, (_, host) in enumerate(matching)
        ]
        exits = [
            PlacedTask(
                host.location,
                msgspec.msgpack.encode(
                    ExitTask(
                        store=place,
                        version=version,
                        host=each,
                        slices=host.exit,
                        output=self._output,
                        part=part_name(number, self._notifications.run, task),
                    )
                ),
            )
            for task, (each, host) in enumerate(exiting)
        ]
        names = (f"lavant match {number}", f"lavant exit {number}")
        try:
            match = match_function(encoded if shared is None else shared, luggage)
            results = run_stages(
                self._context, matches, match, exits, exit_function(luggage), names, one_by_one=self._output is None
            )
            return [self._received(msgspec.msgpack.decode(each, type=ExitReport)) for each in results]
        finally:
            if shared is not None:
                shared.destroy()

    def _received(self, report: ExitReport) -> ExitReport:
        """Write the part, if its task could not."""
        if report.content is None:
            return report
        self._notifications.storage.write(report.part.name, [report.content])
        return msgspec.structs.replace(report, content=None)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        if isinstance(self._failure, LavantError):
            raise self._failure
        raise FailedStream(f"the stream stopped: {root_cause(self._failure)}") from self._failure


def _access_probes(blocks: list[AccessBlock], store: str) -> list[Probe]:
    return [
        Probe(host=0, slice=block.slice, cpu_s=block.cpu_s, publications=block.count, store=store, operator=ACCESS)
        for block in blocks
    ]


def _match_s(reports: list[ExitReport]) -> float:
    """Processor time of all match slices."""
    return math.fsum(probe.cpu_s for report in reports for probe in report.probes if probe.operator == MATCH)


def _in_order(blocks: Iterable[AccessBlock]) -> list[AccessBlock]:
    """Each range once: the tasks of a small batch return the same one."""
    by_start = {block.start: block for block in blocks}
    return [by_start[start] for start in sorted(by_start)]


def _manifest(
    number: int, blocks: list[AccessBlock], version: StoreVersion, store: str, reports: list[ExitReport]
) -> BatchManifest:
    parts = [report.part for report in reports]
    return BatchManifest(
        batch=number,
        start=blocks[0].start,
        end=blocks[-1].end,
        rows=sum(part.rows for part in parts),
        matches=sum(part.matches for part in parts),
        parts=tuple(part for part in parts if part.rows),
        log=blocks[0].log,
        store=store,
        version=version.number,
        rejected=sum(part.rejected for part in parts),
        time_ms=time.time_ns() // 1_000_000,
    )
