"""`counter`: clients increment a durable counter over bad links; confirmed increments survive any crash, exactly once.

A client has one increment in flight, and repeats it until it is answered; its number identifies the repetition. The
server appends increments to a log in groups, and answers when the group is durable. Small as it is, it uses every part
of the kernel, and shows how to write a scenario.

    log-000001, log-000002, …: files of zeros, filled with records from the beginning
    record = checksum (of this record, continuing from the one before) | number | client | start | count after it
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lavant.core.errors import StorageFull
from lavant.simulation.kernel import (
    Arrived,
    Commit,
    Effect,
    Exponential,
    FaultOptions,
    Host,
    Machine,
    Note,
    Scenario,
    SendPacket,
    SimulatedDisk,
    Stimulus,
    WorkRequested,
    World,
    WriteFailed,
    Written,
    schedule_faults,
    swarmed_disk,
    swarmed_links,
)

SERVER = "server"
LOG_BYTES = 4096
RECORD = struct.Struct("<IQQQQ")
CHAIN_START = 0x4C56
RETRY_MS_MIN, RETRY_MS_MAX = 50, 2_000
FULL_RETRY_MS = 100
BACKLOG_MAX = 100


class CounterOptions(FaultOptions, frozen=True, kw_only=True):
    clients: int = 4
    gap_ms: float = 200.0
    """Mean time between two increments of a client."""


class CounterSession(msgspec.Struct, frozen=True):
    """One start of one client."""

    client: int
    start: int


class Increment(msgspec.Struct, frozen=True):
    session: CounterSession
    number: int


class Counted(msgspec.Struct, frozen=True):
    increment: Increment
    count: int
    """Including this increment."""


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────────────────


class CounterClient:
    """Confirms increments one after the other, and notes the confirmed ones."""

    def __init__(self, session: CounterSession) -> None:
        self.backlog = 0
        self._session = session
        self._number = 0
        self._is_waiting = False
        self._retry_ms = RETRY_MS_MIN
        self._resend_ms = 0

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        match stimulus:
            case WorkRequested():
                self.backlog = min(self.backlog + 1, BACKLOG_MAX)
                return [] if self._is_waiting else self._begin(now_ms)
            case Arrived(payload=Counted() as counted):
                if not self._is_waiting or counted.increment != self._increment:
                    return []  # a duplicate or late answer
                self._is_waiting = False
                self.backlog -= 1
                return [Note(counted), *(self._begin(now_ms) if self.backlog else [])]
            case _:
                self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
                return self._send(now_ms)

    def wakeup_ms(self) -> int | None:
        return self._resend_ms if self._is_waiting else None

    @property
    def _increment(self) -> Increment:
        return Increment(self._session, self._number)

    def _begin(self, now_ms: int) -> list[Effect]:
        self._number += 1
        self._is_waiting = True
        self._retry_ms = RETRY_MS_MIN
        return self._send(now_ms)

    def _send(self, now_ms: int) -> list[Effect]:
        self._resend_ms = now_ms + self._retry_ms
        return [SendPacket(SERVER, self._increment)]


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Server:
    """The counter, made from the log on the disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.count = 0
        self.last: dict[CounterSession, Counted] = {}
        """The last increment of each session; its client waits for no other."""
        self._disk = disk
        self._file = 0
        self._position = LOG_BYTES
        self._chain = CHAIN_START
        self._staged: list[tuple[str, Counted]] = []
        self._writing: list[tuple[str, Counted]] = []
        self._retry_ms: int | None = None
        self._recover()

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        match stimulus:
            case Arrived(source=source, payload=Increment() as increment):
                return [*self._increment(source, increment), *self._write(now_ms)]
            case Written():
                answers = self._answers(self._writing)
                self._writing = []
                return [*answers, *self._write(now_ms)]
            case WriteFailed(error=error):
                raise AssertionError(f"this scenario has disks without errors, got {error}")
            case _:
                self._retry_ms = None
                return self._write(now_ms)

    def wakeup_ms(self) -> int | None:
        return self._retry_ms

    def _increment(self, source: str, increment: Increment) -> list[Effect]:
        known = self.last.get(increment.session)
        if known is not None and increment.number <= known.increment.number:
            is_durable = all(known is not counted for _, counted in (*self._staged, *self._writing))
            return self._answers([(source, known)]) if is_durable and known.increment == increment else []
        self._apply(Counted(increment, self.count + 1))
        self._staged.append((source, self.last[increment.session]))
        return []

    def _apply(self, counted: Counted) -> None:
        self.count = counted.count
        self.last[counted.increment.session] = counted

    def _answers(self, counted: list[tuple[str, Counted]]) -> list[Effect]:
        return [SendPacket(client, answer) for client, answer in counted]

    def _write(self, now_ms: int) -> list[Effect]:
        """Write everything staged as one group, unless one is in flight or there is no space."""
        room = (LOG_BYTES - self._position) // RECORD.size
        if self._writing or not self._staged:
            return []
        if room == 0:
            try:
                self._disk.create(f"log-{self._file + 1:06d}", LOG_BYTES)
            except StorageFull:
                self._retry_ms = now_ms + FULL_RETRY_MS
                return []
            self._file, self._position, room = self._file + 1, 0, LOG_BYTES // RECORD.size
        self._writing, self._staged = self._staged[:room], self._staged[room:]
        data = b"".join(self._record(counted) for _, counted in self._writing)
        position, self._position = self._position, self._position + len(data)
        return [Commit(f"log-{self._file:06d}", position, data, tag=self._writing[-1][1].count)]

    def _record(self, counted: Counted) -> bytes:
        increment = counted.increment
        fields = (increment.number, increment.session.client, increment.session.start, counted.count)
        self._chain = checksum(fields, self._chain)
        return RECORD.pack(self._chain, *fields)

    def _recover(self) -> None:
        for name in self._disk.names():
            content = self._disk.read(name)
            if len(content) < LOG_BYTES:  # power was lost during its creation, so nothing was written to it
                self._disk.remove(name)
                continue
            self._file, self._position = int(name.removeprefix("log-")), 0
            for counted, chain in records(content, self._chain):
                self._apply(counted)
                self._chain = chain
                self._position += RECORD.size
            # A process that died may have left records that can be read but are not durable yet.
            self._disk.sync(name)


def checksum(fields: tuple[int, ...], chain: int) -> int:
    return zlib.crc32(RECORD.pack(0, *fields), chain)


def records(content: bytes, chain: int) -> list[tuple[Counted, int]]:
    """The records of one file up to the first that does not follow the one before it, each with its checksum."""
    found: list[tuple[Counted, int]] = []
    for position in range(0, len(content) - RECORD.size + 1, RECORD.size):
        written, *fields = RECORD.unpack_from(content, position)
        chain = checksum(tuple(fields), chain)
        number, client, start, count = fields
        if written != chain or number == 0:
            break
        found.append((Counted(Increment(CounterSession(client, start), number), count), chain))
    return found


# ── the world ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MakeServer: TypeAlias = Callable[[SimulatedDisk], Server]


class Books:
    """What clients were told, and whether it can be true."""

    def __init__(self, world: World, server: Host) -> None:
        self.confirmed = 0
        self._world = world
        self._server = server
        self._highest = 0
        self._by_count: dict[int, Increment] = {}
        self._last: dict[CounterSession, int] = {}

    def confirm(self, host: Host, counted: Counted) -> None:
        increment = counted.increment
        other = self._by_count.setdefault(counted.count, increment)
        if other != increment:
            self._world.violated("each increment counts once", f"{increment} and {other} both made it {counted.count}")
        self._world.count("increments confirmed")
        self.confirmed += 1
        self._highest = max(self._highest, counted.count)
        self._last[increment.session] = increment.number

    def check_count(self) -> str | None:
        machine = self._server.machine
        if not isinstance(machine, Server) or machine.count >= self._highest:
            return None
        return f"the counter is {machine.count}, but {self._highest} was confirmed"

    def check_sessions(self) -> str | None:
        machine = self._server.machine
        if not isinstance(machine, Server):
            return None
        for session, number in self._last.items():
            known = machine.last.get(session)
            if known is None or known.increment.number < number:
                return f"increment {number} of {session} was confirmed, but the server's last of it is {known}"
        return None

    def check_log(self) -> str | None:
        """The log holds each increment once, in the order of the counts."""
        disk, chain = self._server.disk, CHAIN_START
        seen: set[Increment] = set()
        for name in disk.names():
            for counted, following in records(disk.durable(name), chain):
                if counted.increment in seen or counted.count != len(seen) + 1:
                    return f"{counted} is in the log after {len(seen)} others: a second time, or with a wrong count"
                seen.add(counted.increment)
                chain = following
        return None if len(seen) >= self.confirmed else f"{self.confirmed} were confirmed, the log has {len(seen)}"


def build(world: World, options: CounterOptions, make_server: MakeServer = Server) -> None:
    """The world of this scenario; tests insert a faulty server."""
    world.links(swarmed_links(options, world.random("links")))
    disk = swarmed_disk(options, world.random("disk"))
    server = world.host(SERVER, lambda host: make_server(host.disk), disk=disk)
    books = Books(world, server)
    clients = [_add_client(world, number, options, books) for number in range(1, options.clients + 1)]
    world.invariant("what was confirmed stays counted", books.check_count)
    world.invariant("what was confirmed stays known", books.check_sessions, every_us=1_000_000)
    world.at_end("the log has each increment once", books.check_log)
    world.at_end("every client is answered in the end", lambda: _unanswered(clients))
    schedule_faults(world, options, [*[server] * len(clients), *clients])  # the server is hit by half of them


def _add_client(world: World, number: int, options: CounterOptions, books: Books) -> Host:
    def boot(host: Host) -> Machine:
        return CounterClient(CounterSession(number, host.incarnation))

    host = world.host(f"client-{number}", boot, note=books.confirm)
    world.arrivals(host.name, Exponential(int(options.gap_ms * 1000)), lambda random: host.stimulate(WorkRequested(1)))
    return host


def _unanswered(clients: list[Host]) -> str | None:
    for host in clients:
        if isinstance(host.machine, CounterClient) and host.machine.backlog:
            return f"{host.name} still waits for {host.machine.backlog} increments, long after all faults have ended"
    return None


SCENARIO = Scenario(
    name="counter",
    summary="clients increment a durable counter; what was confirmed is there after any crash, exactly once",
    options=CounterOptions,
    build=build,
)
