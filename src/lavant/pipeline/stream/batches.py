"""The batches of a stream: access in the query's own thread, match and exit behind it, the commits in order.

    query    access 1 │ access 2 │ access 3 …
    batch 1           │ match ──► exit ─► commit
    batch 2                      │ match ──► exit ─► commit

So matching of a batch overlaps with the exit of the one before. At most `IN_FLIGHT` batches are on their way; the query
waits for room. If one fails, none behind it is committed.

A small batch takes a shorter way, since a task costs more than its rows: each host's task reads it and matches it, in
one stage, and the exit is in the driver.

    query    access and match 1 │ access and match 2 │ …
    driver                      │ exit 1 ─► commit   │ exit 2 ─► commit
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
from pyspark import SparkContext
from pyspark.sql import DataFrame

from lavant.broker.slices import SliceReader
from lavant.broker.slices.layout import ACCESS
from lavant.broker.slices.reader import StoreVersion
from lavant.core.errors import FailedStream, LavantError
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.probes import Probe, ProbeBuffer
from lavant.pipeline.internals.failures import root_cause
from lavant.pipeline.internals.stages import PlacedTask, run_stages, scan, scan_and_run
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.tasks import (
    ExitReport,
    ExitTask,
    MatchTask,
    exit_blocks,
    exit_bounds,
    match_blocks,
)
from lavant.pipeline.operators.travel import Luggage, SliceTravel
from lavant.pipeline.stream.block_source import ACCESS_ROWS_MIN
from lavant.pipeline.stream.sinks import BatchManifest, Notifications

IN_FLIGHT = 2
BROADCAST_BYTES_MIN = 512 << 10
"""Fewer bytes travel with the function of the tasks, which is quicker than a broadcast."""

SMALL_BYTES_MAX = 4 << 20
"""Matches of a small batch, by host, as they travel to the driver; with more, the batch is no longer a small one."""

Placement = Callable[[int], SliceAssignment]
"""The assignment for a store with so many slices."""


class AccessedBlock(msgspec.Struct, frozen=True, array_like=True):
    """What an access task returns: its block, or what it found for its hosts and the block without its content."""

    block: AccessBlock
    found: list[bytes] = []


class Batches:
    """For `foreachBatch`. `output` is the storage that exit tasks write to; None returns the parts to the driver."""

    def __init__(
        self,
        context: SparkContext,
        *,
        store: SliceReader,
        travel: SliceTravel,
        notifications: Notifications,
        output: str | None,
        placement: Placement,
        probes: ProbeBuffer | None = None,
    ) -> None:
        self._context = context
        self._store = store
        self._travel = travel
        self._notifications = notifications
        self._output = output
        self._placement = placement
        self._probes = probes
        self._run = uuid.uuid4().hex[:8]
        self._next = notifications.next_batch
        self._expect_small = True
        self._small_rows_max = ACCESS_ROWS_MIN
        self._slots = threading.Semaphore(IN_FLIGHT)
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "lavant-batch")
        self._last: Future[None] | None = None
        self._failure: BaseException | None = None
        self.on_failed: Callable[[], None] = lambda: None
        """Called when a batch has failed behind the query."""

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._raise_failure()
        version = self._store.version()
        assignment = self._assignment(version)
        accessed = self._access(rows, version, assignment)
        if not accessed:
            return
        self._learn_size(accessed)
        self._slots.acquire()
        self._raise_failure()
        self._last = self._pool.submit(self._finish, self._next, accessed, version, assignment, self._last)
        self._next += 1

    @property
    def hosts(self) -> int:
        """That match at present."""
        return len(self._assignment(self._store.version()).matching)

    def drain(self) -> None:
        """Wait for the batches on their way; raises if one has failed."""
        self._pool.shutdown(wait=True)
        self._raise_failure()

    def _assignment(self, version: StoreVersion) -> SliceAssignment:
        slices = len(version.slices)
        assignment = self._placement(slices)
        assignment.check(slices, self._store.identity)
        return assignment

    def _access(self, rows: DataFrame, version: StoreVersion, assignment: SliceAssignment) -> list[AccessedBlock]:
        """The batch as its access tasks return it."""
        name = f"lavant access {self._next}"
        if not self._expect_small:
            return [AccessedBlock(_decode_block(row.block)) for row in scan(rows, assignment.access_locations, name)]
        place, luggage = self._travel.pack(self._store, version)
        tasks = [
            msgspec.msgpack.encode(
                MatchTask(store=place, version=version, host=number, slices=host.match, exits=(0, 0))
            )
            for number, (_, host) in enumerate(assignment.matching)
        ]
        locations = [host.location for _, host in assignment.matching]
        results = scan_and_run(rows, locations, small_function(tasks, luggage), f"{name} and match")
        return [msgspec.msgpack.decode(each, type=AccessedBlock) for each in results]

    def _learn_size(self, accessed: list[AccessedBlock]) -> None:
        """The next batch is probably like the last one; if not, it takes the other way, and is right as well."""
        block = accessed[0].block
        if block.tasks and self._expect_small and not all(each.found for each in accessed):
            self._small_rows_max = block.count // 2
        self._expect_small = block.tasks > 0 and block.count <= self._small_rows_max

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
            if all(each.found for each in accessed):
                blocks = [accessed[0].block]
                reports = [self._exit_here(number, accessed, version)]
            else:
                blocks = _in_order(each.block for each in accessed if not each.found)
                reports = self._stages(number, blocks, version, assignment)
            if previous is not None:
                previous.result()
            self._notifications.commit(_manifest(number, blocks, version, self._store.identity, reports))
            if self._probes is not None:
                self._probes.put(_access_probes([each.block for each in accessed], self._store.identity))
                self._probes.put(probe for report in reports for probe in report.probes)
        except BaseException as error:
            if self._failure is None:
                self._failure = error
                self.on_failed()
            raise
        finally:
            self._slots.release()

    def _exit_here(self, number: int, accessed: list[AccessedBlock], version: StoreVersion) -> ExitReport:
        task = ExitTask(
            store=SlicePlace(self._store.address, self._store.identity, self._store.settings.scheme),
            version=version,
            host=0,
            slices=(),
            output=self._notifications.storage.address,
            part=self._part(number, 0),
        )
        return exit_blocks(task, [MatchedBlock.from_bytes(found) for each in accessed for found in each.found])

    def _part(self, number: int, task: int) -> str:
        return f"part-{number:010d}-{self._run}-{task:04d}.parquet"

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
                        part=self._part(number, task),
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


def small_function(tasks: list[bytes], luggage: Luggage) -> Callable[[int, Any], bytes]:
    """The function of tasks that have read a whole batch each: they match it, each for its hosts."""

    def match(number: int, row: Any) -> bytes:
        block = _decode_block(row.block)
        found: list[bytes] = []
        if block.tasks == min(len(tasks), block.count):  # else it is not small, or was read for other hosts
            luggage()
            for data in tasks[number :: block.tasks]:
                task = msgspec.structs.replace(msgspec.msgpack.decode(data, type=MatchTask), exits=(0, block.count))
                found += [each.to_bytes() for each in match_blocks(task, [block])]
        if not found or sum(map(len, found)) > SMALL_BYTES_MAX:
            return msgspec.msgpack.encode(AccessedBlock(block))
        return msgspec.msgpack.encode(AccessedBlock(msgspec.structs.replace(block, pieces=[], refused=[]), found))

    return match


def match_function(encoded: bytes | Any, luggage: Luggage) -> Callable[[bytes], list[bytes]]:
    """The function of match tasks on encoded blocks, or on a broadcast of them."""

    def match(data: bytes) -> list[bytes]:
        luggage()
        task = msgspec.msgpack.decode(data, type=MatchTask)
        content = encoded if isinstance(encoded, bytes) else encoded.value
        blocks = msgspec.msgpack.decode(content, type=list[AccessBlock])
        return [block.to_bytes() for block in match_blocks(task, blocks)]

    return match


def exit_function(luggage: Luggage) -> Callable[[bytes, list[bytes]], bytes]:
    """The function of exit tasks."""

    def exit(data: bytes, blocks: list[bytes]) -> bytes:
        luggage()
        task = msgspec.msgpack.decode(data, type=ExitTask)
        return msgspec.msgpack.encode(exit_blocks(task, [MatchedBlock.from_bytes(block) for block in blocks]))

    return exit


def _decode_block(data: bytes) -> AccessBlock:
    return msgspec.msgpack.decode(data, type=AccessBlock)


def _access_probes(blocks: list[AccessBlock], store: str) -> list[Probe]:
    return [
        Probe(
            host=0,
            slice=block.slice,
            cpu_s=block.cpu_s,
            publications=block.count // max(1, block.tasks),
            store=store,
            operator=ACCESS,
        )
        for block in blocks
    ]


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
