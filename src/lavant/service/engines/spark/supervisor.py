"""Supervises the Spark process and its link: starts it with the server, and again whenever it ends.

    starting ──hello──► running ──┐
       ▲                          │ ends
       └────── waiting ◄──────────┘    backoff of 1 s, 2 s, 4 s … up to a minute; reset after a good run

The process gets its settings through standard input, which stays open: when it ends, the process ends too, so it never
outlives the server. The last lines of its output, with Spark's errors, are kept for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from lavant.broker.protocol.match_protocol import MatchRequest
from lavant.core.errors import MissingComponent
from lavant.service.engines.spark.engine import SparkEngine
from lavant.service.engines.spark.link import EngineLink
from lavant.service.engines.spark.settings import SparkSettings
from lavant.service.observability.openmetrics import MetricFamily
from lavant.service.runtime.ingest.ingest import Ingest

MODULE = "lavant.pipeline.engine"
HELLO_S_MAX = 60.0
STOP_S_MAX = 10.0
BACKOFF_S, BACKOFF_S_MAX = 1.0, 60.0
WELL_S = 60.0
"""After a run of this length, the backoff starts again."""
LINES_KEPT = 100
READ_S_MAX = 1.0
"""Time to read its last output; Java may hold the pipe open for longer."""
TOLD = "lavant: "
_logger = logging.getLogger(__name__)


class SparkProcess:
    """Keeps one process running. `greeted` is set when it connects to the link; `on_ended` is called when it ended."""

    def __init__(self, order: MatchRequest, greeted: asyncio.Event, on_ended: Callable[[], None]) -> None:
        self.state = "is starting"
        """In words, for operators."""
        self.starts = 0
        self._order = order
        self._greeted = greeted
        self._on_ended = on_ended
        self._process: asyncio.subprocess.Process | None = None
        self._output: deque[str] = deque(maxlen=LINES_KEPT)
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the process has started; raises if it lacks something."""
        process = await self._spawn()
        ended = asyncio.ensure_future(process.wait())
        greeted = asyncio.ensure_future(self._greeted.wait())
        await asyncio.wait({ended, greeted}, timeout=HELLO_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        is_there = greeted.done()
        for each in (ended, greeted):
            each.cancel()
        if not is_there:
            await self._end(process)
            raise MissingComponent(self._reason("it did not start in time"))
        self._task = asyncio.get_running_loop().create_task(self._keep(process))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._process is not None:
            await self._end(self._process)

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        backoff_s = BACKOFF_S
        while True:
            started_s = time.monotonic()
            code = await process.wait()
            self._on_ended()
            await self._read_rest()
            if time.monotonic() - started_s > WELL_S:
                backoff_s = BACKOFF_S
            self.state = f"ended ({_ending(code)}) and starts again in {backoff_s:.0f} s: {self._reason('no output')}"
            _logger.warning("the Spark process %s", self.state)
            if said := [line for line in self._output if not line.startswith(TOLD)]:
                _logger.warning("its last output:\n%s", "\n".join(said))
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
            self.state = "is starting again"
            process = await self._spawn()

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.starts += 1
        self._output.clear()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the server, which stops it in order
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(self._order) + b"\n")
        self._process = process
        self._listening = asyncio.get_running_loop().create_task(self._listen(process.stdout))
        return process

    async def _listen(self, said: asyncio.StreamReader) -> None:
        with contextlib.suppress(ValueError, OSError):  # a line that is too long
            while line := await said.readline():
                text = line.decode(errors="replace").rstrip()
                _logger.info("Spark: %s", text)
                self._output.append(text)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), STOP_S_MAX)
            except TimeoutError:
                process.kill()
                await process.wait()
        await self._read_rest()

    async def _read_rest(self) -> None:
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=READ_S_MAX)
            self._listening.cancel()

    def _reason(self, otherwise: str) -> str:
        """Why it ended, in one line."""
        return reason_in(list(self._output)) or otherwise


def reason_in(said: list[str]) -> str | None:
    """The last message of the process, or else its last line.

    >>> reason_in(["lavant: the master is gone", "Traceback …"])
    'the master is gone'
    """
    lines = [line for line in said if line.strip()]
    told = [line.removeprefix(TOLD) for line in lines if line.startswith(TOLD)]
    return (told or lines)[-1] if lines else None


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class SparkSupervisor:
    """For one engine, whose files are in `directory`."""

    def __init__(self, engine: SparkEngine, ingest: Ingest, settings: SparkSettings, directory: Path) -> None:
        self._engine = engine
        self._deliveries = ingest.match_delivery(engine)
        self._link = EngineLink(engine, ingest, self._deliveries)
        self._settings = settings
        self._directory = directory
        self._child: SparkProcess | None = None

    async def start(self) -> None:
        """Raises `MissingComponent` if Spark cannot be started at all, for example without Java."""
        await self._link.open()
        order = MatchRequest(
            port=self._link.port,
            secret=self._link.secret,
            master=self._settings.master,
            hosts_max=self._settings.hosts_max,
            slices=self._settings.slices,
            directory=str(self._directory.absolute()),
            driver_host=self._settings.driver_host,
            archive=self._settings.archive,
            conf=self._settings.conf,
        )
        self._child = SparkProcess(order, self._link.greeted, self._link.lost)
        try:
            await self._child.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()
        await self._link.close()

    def fault(self) -> str | None:
        """Why nothing is matched now; None if it is."""
        if self._link.hosts and not self._link.fault:
            return None
        state = "is starting" if self._child is None else self._child.state
        if self._link.fault:
            state = f"retries after a failure: {self._link.fault}"
        return f"publications are accepted and delivered later: the Spark process {state}"

    def families(self) -> list[MetricFamily]:
        """For `/metrics`."""
        starts = 0 if self._child is None else self._child.starts
        return [
            _one("owed", "gauge", "Publications accepted and not yet in queues.", self._engine.owed),
            _one("hosts", "gauge", "Hosts that match; 0 while Spark starts.", self._link.hosts),
            _one("starts", "counter", "Starts of the Spark process.", starts),
            _one("too_large", "counter", "Notifications too large for their queues.", self._deliveries.too_large),
        ]


def _one(name: str, kind: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(f"lavant_engine_{name}", kind, help, [({}, value)])
