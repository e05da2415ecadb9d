"""A round: offset ranges of all logs in one Spark job, and match results in reports of bounded size."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import SparkContext

from lavant.broker.matching import Matches
from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.internals.host_tasks import run_on_hosts
from lavant.pipeline.stream.exchange import merge_files
from lavant.pipeline.stream.stages import HostTask, match_host

IDS_AT_ONCE = 1 << 20
"""Per report, unless a single publication has more: some 4 MiB."""


class Rounds:
    """`exchange` is a directory that all hosts reach, used for nothing else."""

    def __init__(self, context: SparkContext, exchange: Path, probes: Path | None = None) -> None:
        self.done = 0
        self._context = context
        self._exchange = exchange
        self.probes = probes
        shutil.rmtree(exchange, ignore_errors=True)  # left by a round that was killed
        exchange.mkdir(parents=True)

    def match(self, ranges: Sequence[OffsetRange], assignment: SliceAssignment) -> Iterator[MatchResults]:
        """All hosts match their slices of all logs; the results of one log are merged, and reported in parts."""
        tasks = [
            (assignment.location(host), self._task(range_, host, slices))
            for range_ in ranges
            for host, slices in enumerate(assignment.hosts)
        ]
        names = run_on_hosts(self._context, tasks, match_host)
        self.done += 1
        hosts = len(assignment.hosts)
        for place, range_ in enumerate(ranges):
            paths = [self._exchange / name for name in names[place * hosts : (place + 1) * hosts]]
            yield from reports(range_, merge_files(paths))
            for path in paths:
                path.unlink(missing_ok=True)

    def _task(self, range_: OffsetRange, host: int, slices: tuple[int, ...]) -> bytes:
        return msgspec.msgpack.encode(
            HostTask(
                log=range_.log,
                log_identity=range_.log_identity,
                store=range_.subscriptions,
                store_identity=range_.subscriptions_identity,
                version=range_.version,
                host=host,
                slices=slices,
                start=range_.start,
                end=range_.end,
                exchange=str(self._exchange),
                probes=None if self.probes is None else str(self.probes),
                part=f"{range_.log_name}-",
            )
        )


def reports(range_: OffsetRange, merged: pa.RecordBatch, ids_max: int = IDS_AT_ONCE) -> Iterator[MatchResults]:
    """Every publication of the range, including those without matches, in as few reports as their size allows."""
    lists = merged.column("subscriptions")
    counts = np.zeros(range_.end - range_.start, np.int64)
    counts[merged.column("key").to_numpy() - range_.start] = np.diff(lists.offsets.to_numpy())
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = lists.values.to_numpy().astype(np.uint32, copy=False)
    first = 0
    while first < len(counts):
        fitting = int(np.searchsorted(offsets, offsets[first] + ids_max, side="right")) - 1
        behind = min(max(fitting, first + 1), len(counts))
        yield MatchResults.of(range_.log_name, range_.start + first, Matches(offsets[first : behind + 1], ids))
        first = behind
