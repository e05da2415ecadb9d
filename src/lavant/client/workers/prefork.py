"""Prefork: a pool process loads the functions of a topic, and forks as many workers as are wanted.

    wanted (stdin) ──► fork, or tell one to leave ──► workers
    end of stdin ────► all leave, then the pool ends
    a worker ended unexpectedly ──────► another, after a pause that grows while workers do not last
    a worker missed its heartbeats ───► killed, and another

Loading Python and the functions takes a second or more, and a fork milliseconds, so the pool meets a burst before a
queue builds up. The pool has no threads and no event loop, because forks do not copy them; functions whose modules
start threads on import need workers in containers instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from lavant.client.connection.retries import TIMEOUT_S
from lavant.client.workers.backend import Backend
from lavant.client.workers.backends.factory import open_backend
from lavant.client.workers.backends.lavant import PATIENCE
from lavant.client.workers.functions import Handler, load
from lavant.client.workers.process import default_name, work
from lavant.client.workers.worker import Worker
from lavant.core.errors import LavantError
from lavant.core.worker_pool import (
    BACKEND_VARIABLE,
    HEARTBEAT_S,
    HEARTBEAT_VARIABLE,
    WorkerPoolReport,
    WorkerPoolSettings,
)

KEY_VARIABLE = "LAVANT_KEY"
_logger = logging.getLogger(__name__)


async def be_worker(settings: WorkerPoolSettings, handler: Handler, heartbeat: int) -> int:
    """Runs a worker until it is told to leave, and returns the exit code of the process."""
    os.environ[HEARTBEAT_VARIABLE] = str(heartbeat)

    async def open_it() -> Backend:
        return await open_backend(
            os.environ.get(BACKEND_VARIABLE, settings.url),
            default_name(),
            key=os.environ.get(KEY_VARIABLE, ""),
            ca_file=settings.ca_file if settings.ca_file else None,
            timeout_s=TIMEOUT_S,
            retries=PATIENCE,
            concurrency=settings.concurrency,
            lease_s=settings.lease_s,
        )

    def make(backend: Backend) -> Worker:
        return Worker(backend, [handler], concurrency=settings.concurrency, lease_s=settings.lease_s)

    try:
        await work(open_it, make, drain_s=settings.drain_s)
    except LavantError as error:
        _logger.warning("worker %d of topic %s ends: %s", os.getpid(), settings.topic, error)
        return 1
    return 0


WORKERS_MAX = 1000
PAUSE_FIRST_S, PAUSE_S_MAX = 0.2, 30.0
LASTED_S = 10.0
"""A worker that lived for so long did not fail at its start."""
_STDIN = 0


class Member:
    """A worker of the pool."""

    def __init__(self, pid: int, pipe: int, now_s: float) -> None:
        self.pid = pid
        self.pipe = pipe
        self.since_s = self.heard_s = now_s
        self.is_leaving = False


class Prefork:
    """`fork` starts a worker and returns its process and the pipe of its heartbeats."""

    def __init__(self, settings: WorkerPoolSettings, fork: Callable[[Iterable[int]], tuple[int, int]]) -> None:
        self._settings = settings
        self._fork = fork
        self._members: dict[int, Member] = {}
        """Workers by their pipes."""
        self._wanted = 0
        self._pause_s = PAUSE_FIRST_S
        self._not_before_s = 0.0
        self._died = self._killed = 0
        self._unread = b""
        self._is_ending = False

    def run(self) -> None:
        """Runs until stdin ends and all workers have left."""
        reported: WorkerPoolReport | None = None
        while not (self._is_ending and not self._members):
            now_s = time.monotonic()
            self._bury(now_s)
            self._adjust(now_s)
            report = self._report()
            if report != reported:
                _say(report)
                reported = report
            self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        """Waits for orders, heartbeats or the end of a worker, but not for long: a missed heartbeat is no event."""
        listened = [*self._members, *([] if self._is_ending else [_STDIN])]
        pause_s = min(HEARTBEAT_S, max(0.0, self._not_before_s - now_s)) if self._lacking() else HEARTBEAT_S
        readable, _, _ = select.select(listened, [], [], pause_s)
        now_s = time.monotonic()
        for pipe in readable:
            if pipe == _STDIN:
                self._take_orders()
            elif os.read(pipe, 4096):
                self._members[pipe].heard_s = now_s
            else:
                self._ended(self._members.pop(pipe), now_s)

    def _take_orders(self) -> None:
        data = os.read(_STDIN, 4096)
        if not data:
            self._wanted, self._is_ending = 0, True
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        if lines:
            self._wanted = min(int(lines[-1]), WORKERS_MAX)

    def _lacking(self) -> int:
        return self._wanted - sum(not member.is_leaving for member in self._members.values())

    def _adjust(self, now_s: float) -> None:
        lacking = self._lacking()
        if lacking > 0 and now_s >= self._not_before_s:
            for _ in range(lacking):
                pid, pipe = self._fork(self._members)
                self._members[pipe] = Member(pid, pipe, now_s)
        staying = [member for member in self._members.values() if not member.is_leaving]
        for member in staying[self._wanted :]:  # the latest go first
            member.is_leaving = True
            _signal(member.pid, signal.SIGTERM)

    def _bury(self, now_s: float) -> None:
        """Kills workers that missed their heartbeats."""
        for member in list(self._members.values()):
            if now_s - member.heard_s > self._settings.silence_s:
                _logger.warning("worker %d of topic %s is silent and is killed", member.pid, self._settings.topic)
                self._killed += 1
                self._ended(self._members.pop(member.pipe), now_s)

    def _ended(self, member: Member, now_s: float) -> None:
        """Reaps a worker that closed its pipe, or that must end now."""
        os.close(member.pipe)
        _signal(member.pid, signal.SIGKILL)
        os.waitpid(member.pid, 0)
        if member.is_leaving:
            return
        self._died += 1
        has_lasted = now_s - member.since_s >= LASTED_S
        self._pause_s = PAUSE_FIRST_S if has_lasted else min(2 * self._pause_s, PAUSE_S_MAX)
        self._not_before_s = now_s if has_lasted else now_s + self._pause_s

    def _report(self) -> WorkerPoolReport:
        leaving = sum(member.is_leaving for member in self._members.values())
        return WorkerPoolReport(
            running=len(self._members) - leaving, leaving=leaving, died=self._died, killed=self._killed
        )


def main(arguments: list[str]) -> int:
    """The pool process: settings as JSON in its argument, orders on stdin, reports on stdout."""
    os.closerange(3, 1024)  # workers must not inherit the parent's open files
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes stdin to end the pool
    logging.basicConfig(format="lavant: %(message)s", level=logging.WARNING)
    settings = msgspec.json.decode(arguments[0], type=WorkerPoolSettings)
    try:
        [handler] = load(settings.place, [settings.topic])
    except LavantError as error:
        _say(WorkerPoolReport(fault=str(error)))
        return 1
    gc.collect()
    gc.freeze()  # workers share the loaded pages until one writes to them
    Prefork(settings, lambda others: _forked(settings, handler, others)).run()
    return 0


def _forked(settings: WorkerPoolSettings, handler: Handler, others: Iterable[int]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = 1
    try:
        for each in (reading, *others):  # only the pool keeps the pipes of other workers
            os.close(each)
        os.dup2(os.open(os.devnull, os.O_RDWR), _STDIN)
        os.dup2(2, 1)  # only the pool writes reports
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        code = asyncio.run(be_worker(settings, handler, writing))
    finally:
        os._exit(code)


def _signal(pid: int, number: signal.Signals) -> None:
    """The process has not been reaped, so its id is still its own."""
    os.kill(pid, number)


def _say(report: WorkerPoolReport) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader is gone: stdin ends, too
        os.write(1, msgspec.json.encode(report) + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
