"""The batches of a stream: access in the query's own thread, match and exit behind it, the commits in order.

    query    access 1 │ access 2 │ access 3 …
    batch 1           │ match ──► exit ─► commit
    batch 2                      │ match ──► exit ─► commit

So matching of a batch overlaps with the exit of the one before. At most `IN_FLIGHT` batches are on their way; the query
waits for room. If one fails, none behind it is committed.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
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
from lavant.pipeline.internals.stages import PlacedTask, run_stages, scan
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.tasks import (
    ExitReport,
    ExitTask,
    MatchTask,
    exit_blocks,
    exit_bounds,
    match_blocks,
)
from lavant.pipeline.operators.travel import Luggage, SliceTravel
from lavant.pipeline.stream.sinks import BatchManifest, Notifications

IN_FLIGHT = 2
BROADCAST_BYTES_MIN = 512 << 10
"""Fewer bytes travel with the function of the tasks, which is quicker than a broadcast."""

Placement = Callable[[int], SliceAssignment]
"""The assignment for a store with so many slices."""


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
        self._slots = threading.Semaphore(IN_FLIGHT)
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "lavant-batch")
        self._last: Future[None] | None = None
        self._failure: BaseException | None = None
        self.on_failed: Callable[[], None] = lambda: None
        """Called when a batch has failed behind the query."""

    def __call__(self, rows: DataFrame, number: int) -> None:
        self._raise_failure()
        version = self._store.version()
        slices = len(version.slices)
        assignment = self._placement(slices)
        assignment.check(slices, self._store.identity)
        scanned = scan(rows, assignment.access_locations, f"lavant access {self._next}")
        blocks = sorted((_decode_block(row.block) for row in scanned), key=lambda block: block.start)
        if not blocks:
            return
        self._slots.acquire()
        self._raise_failure()
        self._last = self._pool.submit(self._match_and_exit, self._next, blocks, version, assignment, self._last)
        self._next += 1

    def drain(self) -> None:
        """Wait for the batches on their way; raises if one has failed."""
        self._pool.shutdown(wait=True)
        self._raise_failure()

    def _match_and_exit(
        self,
        number: int,
        blocks: list[AccessBlock],
        version: StoreVersion,
        assignment: SliceAssignment,
        previous: Future[None] | None,
    ) -> None:
        try:
            reports = self._stages(number, blocks, version, assignment)
            if previous is not None:
                previous.result()
            self._notifications.commit(_manifest(number, blocks, version, self._store.identity, reports))
            if self._probes is not None:
                self._probes.put(_access_probes(blocks, self._store.identity))
                self._probes.put(probe for report in reports for probe in report.probes)
        except BaseException as error:
            if self._failure is None:
                self._failure = error
                self.on_failed()
            raise
        finally:
            self._slots.release()

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
                        part=f"part-{number:010d}-{self._run}-{task:04d}.parquet",
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
        Probe(host=0, slice=block.slice, cpu_s=block.cpu_s, publications=block.count, store=store, operator=ACCESS)
        for block in blocks
    ]


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
