"""Access → match → exit of one micro-batch, in the driver, for `foreachBatch`.

    AP    a stretch of the log, one version of the subscriptions, one placement: the same for all tasks of the batch
    M     a task on each host reads the stretch and leaves what it found in a file
    EP    the files of all hosts become the notifications of the batch

Spark's source says which stretch, and its checkpoint when it is done; the publications themselves do not pass through
Spark. What is left of a batch's cost is one job with a task a host.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from lavant.broker.slices import SliceReader
from lavant.pipeline.assignment import Assignment
from lavant.pipeline.checkpoints import Stretch, stretch_of
from lavant.pipeline.hosts import run_on_hosts
from lavant.pipeline.sinks import Notifications, Origin
from lavant.pipeline.stages import HostTask, match_host


class MicroBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything lies; directories that all hosts reach under the same name."""

    log: Path
    store: Path
    store_identity: str
    exchange: Path
    checkpoint: Path
    notifications: Notifications
    hosts: int
    placement: Path | None = None
    """A file that the manager replaces; without it slices are dealt out to `hosts` evenly."""
    probes: Path | None = None
    starting_offset: int = 0

    def __call__(self, batch: DataFrame, number: int) -> None:
        stretch = stretch_of(self.checkpoint, number, self.starting_offset)
        origin = Origin(stretch.log, self.store_identity)
        if self.notifications.is_done(number, stretch.start, origin):
            return
        found = run_on_hosts(batch.sparkSession.sparkContext, self._tasks(stretch), match_host)
        self.notifications.write(number, stretch.start, [self.exchange / name for name in found], origin)

    def _tasks(self, stretch: Stretch) -> list[tuple[str, bytes]]:
        """Access (AP): every host gets the whole stretch, for its own slices."""
        store = SliceReader(self.store, self.store_identity)
        version = store.version().number
        assignment = self._assignment(store.settings.slices)
        assignment.check(store.settings.slices, store.identity)
        tasks = (
            HostTask(
                log=str(self.log),
                log_identity=stretch.log,
                store=str(self.store),
                store_identity=self.store_identity,
                version=version,
                host=host,
                slices=slices,
                start=stretch.start,
                end=stretch.end,
                exchange=str(self.exchange),
                probes=None if self.probes is None else str(self.probes),
            )
            for host, slices in enumerate(assignment.hosts)
        )
        return [(assignment.location(task.host), msgspec.msgpack.encode(task)) for task in tasks]

    def _assignment(self, slices: int) -> Assignment:
        if self.placement is None:
            return Assignment.even(slices, self.hosts)
        return msgspec.json.decode(self.placement.read_bytes(), type=Assignment)
