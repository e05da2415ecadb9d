"""Telemetry of a server: the event loop records events, a thread turns them into rows and metrics, and writes files.

    BrokerMachine, Ingest ──► TelemetryEvents ──columns, every 2 seconds──► thread ──► metrics
                                                                              └─────► rows ──► files, every few seconds

Nothing waits for it: excess events are dropped and counted, and a failing disk costs rows, not service.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable

from lavant.broker.queues.machine import Queues
from lavant.core.telemetry import NAME_LENGTH_MAX
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.observability.telemetry.digest import Digest
from lavant.service.observability.telemetry.events import EventColumns, TelemetryEvents
from lavant.service.observability.telemetry.files import TelemetryFiles
from lavant.service.observability.telemetry.rows import Rows
from lavant.service.observability.telemetry.stages import Stages

TICK_S = 2.0
PAUSE_S = 0.08
"""Pause after timing some receives, under load."""
FILE_S = 10.0
FILE_ROWS_MAX = 500_000
BEHIND_MAX = 5
"""Columns that wait for the thread; then the loop keeps its events, up to a bound of its own."""
NAMES_MAX = 100_000
_logger = logging.getLogger(__name__)


class Telemetry:
    """The loop records in `events`; without `files` there are only metrics."""

    def __init__(self, queues: Queues, files: TelemetryFiles | None = None) -> None:
        self.events = TelemetryEvents(queues, later=self._pause)
        self.stages = Stages()
        self.lost_rows = 0
        """Rows that could not be written."""
        self._queues = queues
        self._files = files
        self._rows = Rows(socket.gethostname()[:NAME_LENGTH_MAX])
        wall_ns = time.time_ns() - time.monotonic_ns()
        self._digest = Digest(self._rows, self.stages, self._name_of, last=queues.number, wall_ns=wall_ns)
        self._names: dict[int, str] = {}
        self._pending: queue.SimpleQueue[EventColumns | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Call it in the event loop."""
        self._thread.start()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Write all events recorded so far."""
        if self._timer is not None:
            self._timer.cancel()
        self._pending.put(self.events.take())
        self._pending.put(None)
        self._thread.join()

    def families(self) -> list[MetricFamily]:
        """For `/metrics`."""
        written = 0 if self._files is None else self._files.written
        return [
            *self.stages.families(),
            MetricFamily("lavant_telemetry_dropped", "counter", "Requests not recorded.", [({}, self.events.dropped)]),
            MetricFamily(
                "lavant_telemetry_lost_rows",
                "counter",
                "Rows that could not be written.",
                [({}, self.lost_rows)],
            ),
            MetricFamily("lavant_telemetry_files", "counter", "Files written since the start.", [({}, written)]),
        ]

    def _tick(self) -> None:
        if self._pending.qsize() < BEHIND_MAX:
            self._pending.put(self.events.take())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    @staticmethod
    def _pause(resume: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(PAUSE_S, resume)

    def _run(self) -> None:
        due_s = time.monotonic() + FILE_S
        while True:
            try:
                columns = self._pending.get(timeout=FILE_S)
            except queue.Empty:
                columns = EventColumns()
            if columns is None:
                self._write()
                return
            self._digest.take(columns)
            if len(self._rows) >= FILE_ROWS_MAX or time.monotonic() >= due_s:
                self._write()
                due_s = time.monotonic() + FILE_S

    def _write(self) -> None:
        if self._files is None:
            self._rows.clear()
            return
        rows = self._rows.take()
        for start in range(0, rows.num_rows, FILE_ROWS_MAX):
            some = rows.slice(start, FILE_ROWS_MAX)
            try:
                self._files.write(some)
            except OSError as error:
                if not self.lost_rows:
                    _logger.warning("telemetry cannot be written, the rows are lost: %s", error)
                self.lost_rows += some.num_rows

    def _name_of(self, serial: int) -> str | None:
        name = self._names.get(serial)
        if name is None:
            found = self._queues.names_of([serial])
            if not found:
                return None
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[serial] = found[0]
        return name
