"""The server's part of the Spark engine: publication logs, subscriptions in slices, and the work that is left.

    publish ──► publication log ──► (journal: accepted) ──► work() ──► Spark ──► MatchResults ──► parts() ──► queues

Nothing here talks to Spark: `link` sends `work` and receives match results, `supervisor` keeps the process running.
Each namespace and scheme has a log of its own.
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
from lavant.service.engines.interface import ChangeBatch, EngineBatch, Retired
from lavant.service.engines.spark.namespace_log import NamespaceLog
from lavant.service.engines.spark.settings import LIMITS, SparkLimits
from lavant.service.runtime.ingest.match_delivery import DeliveryPart


class SparkEngine:
    """`offsets` are the broker's, `identity` is that of its journal; `on_work` is called in the loop when there is
    something to match."""

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
        self.scopes_max: int | None = limits.scopes_max
        self._logs: dict[str, NamespaceLog] = {}
        self._empty: set[str] = set()
        """Logs without subscriptions."""
        self._turn = 0
        for name, log in offsets.all():
            if log.lag:
                self._log(name)
            elif name != FORGOTTEN:
                self._empty.add(name)

    @property
    def owed(self) -> int:
        """The lag: accepted publications that are not in queues yet."""
        return self._offsets.lag

    # ── as an engine ──────────────────────────────────────────────────────────────────────────────────────────────────

    def change(self, batches: Sequence[ChangeBatch]) -> None:
        """Each batch makes a new version of its log's subscriptions."""
        for batch in batches:
            log = self._log(log_name(*batch.scope))
            if batch.serials is None:
                log.remove(batch.numbers)
            else:
                log.add(batch.numbers, batch.filters, batch.serials)
            self._note(log)

    def retire(self) -> list[Retired]:
        over = [name for name in self._empty if not self._offsets[name].lag]
        for name in over:
            self._empty.discard(name)
            log = self._logs.pop(name, None)
            if log is not None:
                log.close()
        return [Retired(name, self._directory / name) for name in over]

    def check_room(self, namespace: str) -> None:
        limits = self._limits
        for scheme in (PLAIN, ENCRYPTED):
            name = log_name(namespace, scheme)
            log, owed = self._logs.get(name), self._offsets[name].lag
            if log is not None and (owed >= limits.owed_max or log.owed_bytes >= limits.owed_bytes_max):
                raise Overloaded(
                    f"{owed} publications of {log.owed_bytes} bytes wait to be matched and delivered in namespace "
                    f"{namespace!r}, at most {limits.owed_max} of {limits.owed_bytes_max} bytes may; publish again "
                    "later, and check that its queues are not full"
                )

    def publish(self, batch: EngineBatch) -> list[FanOutBatch] | LoggedBatch:
        """Append to the log, unless there are no subscriptions."""
        log = self._logs.get(log_name(batch.namespace, batch.scheme))
        if log is None or not len(log):
            return [FanOutBatch.nothing(len(batch.publications))]
        start = log.end
        try:
            size_bytes = log.append(batch.publications)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StorageFull(f"the publication log cannot be written: {error}; free space on the disk") from None
        return LoggedBatch(self, log, start, size_bytes)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    # ── work and match results ────────────────────────────────────────────────────────────────────────────────────────

    def work(self, now_ms: int) -> list[OffsetRange]:
        """Ranges that can be matched now, round-robin over the logs."""
        names = list(self._logs)
        ranges: list[OffsetRange] = []
        for place in range(len(names)):
            name = names[(self._turn + place) % len(names)]
            log, offsets = self._logs[name], self._offsets[name]
            if offsets.lag and log.blocked_until_ms <= now_ms:
                ranges.append(log.next_range(offsets))
                if len(ranges) == self._limits.ranges_max:
                    self._turn = (self._turn + place + 1) % len(names)
                    break
        return ranges

    def wakeup_ms(self) -> int | None:
        """When a blocked log is retried."""
        return min((log.blocked_until_ms for name, log in self._logs.items() if self._offsets[name].lag), default=None)

    def block(self, name: str, now_ms: int) -> None:
        """Match results could not be delivered, for example because queues are full: retry later."""
        if name in self._logs:
            self._logs[name].blocked_until_ms = now_ms + self._limits.retry_ms

    def settled(self, name: str, end: int) -> None:
        """Publications up to an offset are durably delivered to queues."""
        if name in self._logs:
            self._logs[name].durable = max(self._logs[name].durable, end)

    def parts(self, results: MatchResults, delivered: int) -> list[DeliveryPart]:
        log = self._logs.get(results.log_name)
        if log is None and results.end <= delivered:
            return []  # retired since
        return self._log(results.log_name).parts(results, delivered)

    def moved(self, name: str) -> None:
        self._logs[name].moved(self._offsets[name].delivered)

    def _log(self, name: str) -> NamespaceLog:
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = NamespaceLog(
                name,
                self._directory / name,
                scheme=name.partition("-")[0],
                slices=self._slices,
                offsets=self._offsets[name],
                limits=self._limits,
                identity=derived_identity(self._identity, name),
            )
            self._note(log)
        return log

    def _note(self, log: NamespaceLog) -> None:
        """Keep track of logs without subscriptions."""
        if len(log):
            self._empty.discard(log.name)
        else:
            self._empty.add(log.name)


class LoggedBatch:
    """An appended batch; implements `Logged`."""

    def __init__(self, engine: SparkEngine, log: NamespaceLog, start: int, size_bytes: int) -> None:
        self.log_name = log.name
        self.end = log.end
        self._engine = engine
        self._log = log
        self._start = start
        self._size_bytes = size_bytes

    def confirm(self) -> None:
        self._log.count(self.end, self._size_bytes)
        self._engine.on_work()

    def withdraw(self) -> None:
        """The Spark process may have read it already; it then fails and starts again."""
        self._log.cut(self._start)


def log_name(namespace: str, scheme: str) -> str:
    """
    >>> log_name("", "plain"), log_name("acme", "encrypted")
    ('plain', 'encrypted-acme')
    """
    return f"{scheme}-{namespace}" if namespace else scheme
