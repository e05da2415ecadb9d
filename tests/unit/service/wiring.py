"""A service without network and disk: transports that note what is written, and a store that commits when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.frames import GREETING_NUMBER, Hello, decode_answer
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue
from lavant.broker.storage.journal import RecoveredJournal
from lavant.core.errors import StorageFailed
from lavant.core.frames import Frames, frame
from lavant.service.auth.audit import AuditLog
from lavant.service.auth.keys import KeyRing
from lavant.service.engines.interface import Engine
from lavant.service.engines.local import LocalEngine
from lavant.service.net.admission import ConnectionAdmission, Ticket
from lavant.service.net.native import NativeProtocol
from lavant.service.observability.openmetrics import Histogram
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.clock import ServerClock
from lavant.service.runtime.limits import LIMITS, ServiceLimits
from lavant.service.runtime.readiness import Readiness
from lavant.service.runtime.turns import QUANTUM_S, Turns


def ready() -> Readiness:
    """Of a server that serves."""
    readiness = Readiness(lambda: None)
    readiness.begin()
    return readiness


class FakeStore:
    """Commits when `commit` is called."""

    def __init__(self) -> None:
        self.recovered = RecoveredJournal(0, None, iter(()))
        self.identity = b"fake"
        self.commit_times = Histogram()
        self.position = 0
        self.is_full = self.is_exhausted = False
        self.staged_bytes = 0
        self.is_hurried = self.is_at_once = self.is_closed = False

    def start(self, *, on_committed: Callable[[int], None], on_failed: Callable[[StorageFailed], None]) -> None:
        self.on_committed, self.on_failed = on_committed, on_failed

    def stage(self, record: bytes, *, hurry: bool = True) -> int:
        self.position += 1
        self.staged_bytes += len(record)
        return self.position

    def hurry(self, *, at_once: bool = False) -> None:
        self.is_hurried, self.is_at_once = True, at_once

    def commit(self) -> None:
        self.staged_bytes = 0
        self.is_hurried = False
        self.on_committed(self.position)

    async def close(self) -> None:
        self.is_closed = True
        self.commit()


class FakeTransport(asyncio.Transport):
    """Notes what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.reads = True
        self.is_closed = self.is_aborted = False
        self.buffer_bytes = 0
        self.protocol: asyncio.BaseProtocol | None = None
        self.on_write: Callable[[], None] = lambda: None
        self.on_close: Callable[[], None] = lambda: None
        self.is_stuck = False
        """Closing does not end it, because the other side does not read."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        self.on_write()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.buffer_bytes

    def pause_reading(self) -> None:
        assert self.reads, "paused twice"
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads, "resumed twice"
        self.reads = True

    def close(self) -> None:
        self.is_closed = True
        if not self.is_stuck:
            asyncio.get_running_loop().call_soon(self.on_close)

    def abort(self) -> None:
        self.is_aborted = True
        asyncio.get_running_loop().call_soon(self.on_close)

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


def ticket() -> Ticket:
    """A place that nobody else wants."""
    admitted = ConnectionAdmission(connections_max=1, unauthenticated_max=1).admit()
    assert admitted is not None
    return admitted


class WorkClock:
    """For turns of the loop: it moves only when somebody looks at it, which is once a request."""

    def __init__(self, step_s: float = QUANTUM_S / 4) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class FakeClient:
    """The other end of a connection."""

    def __init__(self, service: BrokerRuntime, keys: KeyRing | None = None, readiness: Readiness | None = None) -> None:
        self.transport = FakeTransport()
        readiness = ready() if readiness is None else readiness
        self.protocol = NativeProtocol(service, KeyRing() if keys is None else keys, readiness, ticket())
        self.transport.on_close = lambda: self.protocol.connection_lost(None)
        self.protocol.connection_made(self.transport)
        self._frames = Frames()
        self._seen = 0

    def greet(self, token: bytes = b"") -> FakeClient:
        self.protocol.data_received(bytes(frame(GREETING_NUMBER, Hello(token))))
        return self

    def ask(self, *requests: tuple[int, Request]) -> None:
        """All in one piece."""
        self.protocol.data_received(b"".join(bytes(frame(number, request)) for number, request in requests))

    def answers(self) -> dict[int, Answer]:
        """What came since the last time."""
        data = b"".join(self.transport.writes[self._seen :])
        self._seen = len(self.transport.writes)
        return {number: decode_answer(content) for number, content in self._frames.feed(data)}


class Wiring:
    """A service, its store, and what made it fail. Without other turns, requests take no time."""

    def __init__(
        self,
        limits: ServiceLimits = LIMITS,
        *,
        acknowledge_early: bool = False,
        engine: Engine | None = None,
        store: FakeStore | None = None,
        turns: Turns | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.store = FakeStore() if store is None else store
        self.failures: list[Exception] = []
        self.broker = BrokerState()
        self.queues = self.broker.queues
        self.server = BrokerMachine(self.broker, acknowledge_early=acknowledge_early)
        self.service = BrokerRuntime(
            self.server,
            LocalEngine(slices=1) if engine is None else engine,
            self.store,
            ServerClock(),
            limits=limits,
            on_failed=self.failures.append,
            turns=Turns(asyncio.get_running_loop(), clock=lambda: 0.0) if turns is None else turns,
            audit=audit,
        )
        self.service.begin()

    async def create(self, queue: str = "q", config: QueueConfig = QueueConfig()) -> None:  # noqa: B008
        asking = asyncio.ensure_future(self.service.execute(CreateQueue(queue, config)))
        await turn()
        self.store.commit()
        await asking
        await turn()


async def turn() -> None:
    """Let the loop do all that is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what takes some milliseconds, but not for ever."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that needs an event loop."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run
