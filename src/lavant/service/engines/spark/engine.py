"""The Spark engine, as the service sees it: logs to append to, subscriptions in slices, and what is left to match.

    publish ──► log of the lane ──► (journal: it counts) ──► work() ──► Spark ──► Found ──► parts() ──► queues

Nothing here talks to Spark: `link` hands `work` over and takes in what was found, `child` keeps the process running.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.broker.subscriptions.log_offsets import FORGOTTEN, LogOffsets
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.core.errors import Overloaded, StorageFull
from lavant.core.identities import derived_identity
from lavant.service.engines.interface import EngineBatch, Retired, Step
from lavant.service.engines.spark.namespace_log import NamespaceLog
from lavant.service.engines.spark.settings import LIMITS, SparkLimits
from lavant.service.runtime.match_delivery import DeliveryPart


class SparkEngine:
    """`offsets` are the broker's own, and `identity` is the journal's that they are in; `on_work` is called in the loop
    when there is something to match."""

    waits = True

    def __init__(
        self, directory: Path, offsets: LogOffsets, *, slices: int, identity: bytes, limits: SparkLimits = LIMITS
    ) -> None:
        self.on_work: Callable[[], None] = lambda: None
        self._directory = directory
        self._offsets = offsets
        self._slices = slices
        self._identity = identity
        self._limits = limits
        self.lanes_max: int | None = limits.lanes_max
        self._lanes: dict[str, NamespaceLog] = {}
        self._empty: set[str] = set()
        """Lanes without subscriptions."""
        self._turn = 0
        for name, lane in offsets.all():
            if lane.lag:
                self._lane(name)
            elif name != FORGOTTEN:
                self._empty.add(name)

    @property
    def owed(self) -> int:
        """Publications that were accepted and are not in queues yet."""
        return self._offsets.lag

    # ── as every engine ───────────────────────────────────────────────────────────────────────────────────────────────

    def change(self, steps: Sequence[Step]) -> None:
        """Each makes a version of its lane's subscriptions."""
        for step in steps:
            lane = self._lane(lane_name(*step.lane))
            if step.serials is None:
                lane.remove(step.numbers)
            else:
                lane.add(step.numbers, step.filters, step.serials)
            self._note(lane)

    def retire(self) -> list[Retired]:
        over = [name for name in self._empty if not self._offsets[name].lag]
        for name in over:
            self._empty.discard(name)
            lane = self._lanes.pop(name, None)
            if lane is not None:
                lane.close()
        return [Retired(name, self._directory / name) for name in over]

    def check_room(self, namespace: str) -> None:
        limits = self._limits
        for scheme in (PLAIN, ENCRYPTED):
            name = lane_name(namespace, scheme)
            lane, owed = self._lanes.get(name), self._offsets[name].lag
            if lane is not None and (owed >= limits.owed_max or lane.owed_bytes >= limits.owed_bytes_max):
                raise Overloaded(
                    f"{owed} publications of {lane.owed_bytes} bytes wait to be matched and delivered in namespace "
                    f"{namespace!r}, at most {limits.owed_max} of {limits.owed_bytes_max} bytes may; publish again "
                    "later, and see that its queues are not full"
                )

    def publish(self, batch: EngineBatch) -> list[FanOutBatch] | LoggedBatch:
        """Onto the log's disk; where nobody subscribes, nothing needs to be."""
        lane = self._lanes.get(lane_name(batch.namespace, batch.scheme))
        if lane is None or not len(lane):
            return [FanOutBatch.nothing(len(batch.publications))]
        start = lane.end
        try:
            size_bytes = lane.append(batch.publications)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StorageFull(f"the publication log cannot be written: {error}; make room on the disk") from None
        return LoggedBatch(self, lane, start, size_bytes)

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()

    # ── what is handed over, and what comes back ──────────────────────────────────────────────────────────────────────

    def work(self, now_ms: int) -> list[OffsetRange]:
        """What can be matched now, of some lanes; each time it begins with the one behind the last."""
        names = list(self._lanes)
        stretches: list[OffsetRange] = []
        for place in range(len(names)):
            name = names[(self._turn + place) % len(names)]
            lane, offsets = self._lanes[name], self._offsets[name]
            if offsets.lag and lane.blocked_until_ms <= now_ms:
                stretches.append(lane.stretch(offsets))
                if len(stretches) == self._limits.stretches_max:
                    self._turn = (self._turn + place + 1) % len(names)
                    break
        return stretches

    def wakeup_ms(self) -> int | None:
        """When a lane that is blocked is tried again."""
        return min(
            (lane.blocked_until_ms for name, lane in self._lanes.items() if self._offsets[name].lag), default=None
        )

    def block(self, lane: str, now_ms: int) -> None:
        """What was found could not be delivered: its queues are full, say."""
        if lane in self._lanes:
            self._lanes[lane].blocked_until_ms = now_ms + self._limits.retry_ms

    def settled(self, lane: str, end: int) -> None:
        """The disk has it that publications up to an offset are in queues."""
        if lane in self._lanes:
            self._lanes[lane].durable = max(self._lanes[lane].durable, end)

    def parts(self, found: MatchResults, delivered: int) -> list[DeliveryPart]:
        lane = self._lanes.get(found.lane)
        if lane is None and found.end <= delivered:
            return []  # it has retired since
        return self._lane(found.lane).parts(found, delivered)

    def moved(self, lane: str) -> None:
        self._lanes[lane].moved(self._offsets[lane].delivered)

    def _lane(self, name: str) -> NamespaceLog:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = NamespaceLog(
                name,
                self._directory / name,
                scheme=name.partition("-")[0],
                slices=self._slices,
                offsets=self._offsets[name],
                limits=self._limits,
                identity=derived_identity(self._identity, name),
            )
            self._note(lane)
        return lane

    def _note(self, lane: NamespaceLog) -> None:
        """Whether it has subscriptions."""
        if len(lane):
            self._empty.discard(lane.name)
        else:
            self._empty.add(lane.name)


class LoggedBatch:
    """As `Logged` has it."""

    def __init__(self, engine: SparkEngine, lane: NamespaceLog, start: int, size_bytes: int) -> None:
        self.lane = lane.name
        self.end = lane.end
        self._engine = engine
        self._lane = lane
        self._start = start
        self._size_bytes = size_bytes

    def confirm(self) -> None:
        self._lane.count(self.end, self._size_bytes)
        self._engine.on_work()

    def withdraw(self) -> None:
        """A process that matches may have seen it in the log already; it fails then, and starts anew."""
        self._lane.cut(self._start)


def lane_name(namespace: str, scheme: str) -> str:
    """
    >>> lane_name("", "plain"), lane_name("acme", "encrypted")
    ('plain', 'encrypted-acme')
    """
    return f"{scheme}-{namespace}" if namespace else scheme
