"""Consumers as processes of this machine: one pool per topic, which forks workers (`lavant.client.workers.prefork`).

    server ──stdin: number──► pool ──fork, SIGTERM──► workers
           ◄─stdout: report──      ◄───heartbeat─────

No process is left behind, however the server ends: a pool stops its workers and itself when its stdin ends, and workers
stop when their pool is gone. A pool that dies is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.worker_pool import WorkerPoolReport, WorkerPoolSettings
from lavant.service.autoscaling.allocators.interface import ConsumerCounts

START_S_MAX = 60.0
STOP_S_MAX = 40.0
"""Longer than workers may take to drain."""
PAUSE_FIRST_S, PAUSE_S_MAX = 0.5, 30.0

_logger = logging.getLogger(__name__)


class ProcessAllocator:
    """One pool for each topic. Relative paths count from `directory`; `environment` is added to that of the server."""

    name = "processes"

    def __init__(
        self,
        pools: Mapping[str, WorkerPoolSettings],
        directory: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        whole = {**os.environ, **environment}
        self._pools = {topic: _WorkerPool(settings, directory, whole) for topic, settings in pools.items()}

    async def start(self) -> None:
        try:
            await asyncio.gather(*(pool.start() for pool in self._pools.values()))
        except BaseException:
            await self.stop()
            raise

    async def scale(self, topic: str, consumers: int) -> None:
        await self._pools[topic].scale(consumers)

    def counts(self) -> dict[str, ConsumerCounts]:
        return {topic: pool.counts() for topic, pool in self._pools.items()}

    async def stop(self) -> None:
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))


class _WorkerPool:
    def __init__(self, settings: WorkerPoolSettings, directory: Path, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._directory = directory
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wanted = 0
        self._report = WorkerPoolReport()
        self._died_before = 0
        """Workers that died in pools that are gone."""
        self._heard = asyncio.Event()
        self._is_stopping = False

    async def start(self) -> None:
        """Returns when the pool has loaded its functions."""
        await self._launch()
        self._watching = asyncio.create_task(self._watch(), name=f"pool of topic {self._settings.topic}")
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._heard.wait()
        except TimeoutError:
            raise MissingComponent(
                f"{self._settings.place} was not loaded within {START_S_MAX:g} s, for the workers of topic "
                f"{self._settings.topic!r}; check what it does on import"
            ) from None
        if self._report.fault:
            raise InvalidValue(f"topic {self._settings.topic!r}: {self._report.fault}")

    async def scale(self, consumers: int) -> None:
        self._wanted = consumers
        await self._order()

    def counts(self) -> ConsumerCounts:
        report = self._report
        return ConsumerCounts(
            wanted=self._wanted,
            running=report.running,
            leaving=report.leaving,
            died=self._died_before + report.died,
            fault=report.fault,
        )

    async def stop(self) -> None:
        self._is_stopping = True
        if self._process is None or self._watching is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self._process.wait()
        except TimeoutError:
            _logger.warning("the workers of topic %s did not stop in time and are killed", self._settings.topic)
            self._process.kill()  # the workers notice and stop
            await self._process.wait()
        await self._watching

    async def _launch(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lavant.client.workers.prefork", msgspec.json.encode(self._settings).decode()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self._directory,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for the server, which stops them in order
        )

    async def _order(self) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.is_closing():
            return
        with contextlib.suppress(ConnectionError):  # it died: the next one is told
            self._process.stdin.write(b"%d\n" % self._wanted)
            await self._process.stdin.drain()

    async def _watch(self) -> None:
        """Read reports; start the pool again if it ends by itself."""
        pause_s = PAUSE_FIRST_S
        while True:
            assert self._process is not None
            assert self._process.stdout is not None
            async for line in self._process.stdout:
                self._report = msgspec.json.decode(line, type=WorkerPoolReport)
                self._heard.set()
                pause_s = PAUSE_FIRST_S if not self._report.fault else pause_s
            code = await self._process.wait()
            self._heard.set()
            if self._is_stopping:
                return
            topic, fault = self._settings.topic, self._report.fault
            self._died_before += self._report.died + self._report.running
            self._report = WorkerPoolReport(fault=fault if fault else f"the worker pool ended with exit code {code}")
            _logger.warning("workers of topic %s: %s; started again in %g s", topic, self._report.fault, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            if self._is_stopping:
                return
            await self._launch()
            await self._order()
