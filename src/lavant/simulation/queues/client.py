"""A client on bad links: a few concurrent calls, whose outcome is unknown without an answer.

    down ── Hello … Welcome ──► connected ── Call … Answered
      ▲                             │
      └── HungUp, or silence ───────┘      calls in flight then have no answer

`ClientWork` decides its requests; everything it sends and receives goes into the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Protocol

import msgspec

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.jobs import LeaseTasks
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Receive
from lavant.broker.queues.history import History, HistoryViolation, RecordedOperation, check
from lavant.simulation.kernel import Arrived, Effect, Host, Note, SendPacket, Stimulus, TimerDue, WorkRequested, World
from lavant.simulation.kernel.distributions import MS
from lavant.simulation.queues.protocol import HungUp, SessionId, SimulatedAnswer, SimulatedCall, SimulatedHello, Welcome


class Recorder:
    """Takes the notes of all clients."""

    def __init__(self, world: World, configs: Mapping[str, QueueConfig]) -> None:
        self.restarts_ms: list[int] = []
        self._world = world
        self._configs = dict(configs)
        self._under_way: dict[tuple[str, SessionId, int], tuple[int, Request]] = {}
        self._operations: list[RecordedOperation] = []

    def note(self, host: Host, value: Began | CallEnded) -> None:
        now_ms = self._now_ms
        key = host.name, value.session, value.number
        if isinstance(value, Began):
            self._under_way[key] = now_ms, value.request
            return
        start_ms, request = self._under_way.pop(key)
        self._world.count(f"answers {type(value.answer).__name__}")
        self._operations.append(
            RecordedOperation(client=host.name, start_ms=start_ms, request=request, end_ms=now_ms, answer=value.answer)
        )

    def restarted(self) -> None:
        self.restarts_ms.append(self._now_ms)

    def violations(self, left: dict[int, str] | None, *, clock_ppm: int, clock_jumps_ms: int) -> list[HistoryViolation]:
        """Violations in everything recorded so far."""
        unanswered = [
            RecordedOperation(client=name, start_ms=start_ms, request=request)
            for (name, _, _), (start_ms, request) in self._under_way.items()
        ]
        history = History(
            configs=self._configs,
            operations=self._operations + unanswered,
            restarts_ms=self.restarts_ms,
            left=left,
            clock_ppm=clock_ppm,
            clock_jumps_ms=clock_jumps_ms,
        )
        return check(history)

    @property
    def _now_ms(self) -> int:
        return self._world.now_us // MS


HELLO_MS = 20
SILENCE_MS = 2_000
"""How long an answer may take, beyond the time that a receive waits."""


class Began(msgspec.Struct, frozen=True):
    """For the history: a request was sent."""

    session: SessionId
    number: int
    request: Request


class CallEnded(msgspec.Struct, frozen=True):
    """For the history: its answer came."""

    session: SessionId
    number: int
    answer: Answer


class ClientWork(Protocol):
    """The behaviour of a client."""

    def wishes(self, under_way: int, now_ms: int) -> Iterable[Request]:
        """The requests to send now, while so many have no answer yet."""
        ...

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        """The answer to a request; None if it is unknown."""
        ...

    def asked(self, value: object, now_ms: int) -> None:
        """The workload requests something."""
        ...

    def connected(self) -> None:
        """The client is connected, or connected again."""
        ...

    def wakeup_ms(self) -> int | None:
        """When it will have requests again by itself."""
        ...


class ClientMachine:
    """One start of a client."""

    def __init__(self, server: str, start: int, work: ClientWork, random: Random) -> None:
        self._server = server
        self._work = work
        self._random = random
        self._session = SessionId(start, 1)
        self._server_start: int | None = None
        """Known while it is connected."""
        self._hello_ms = 0
        self._number = 0
        self._under_way: dict[int, tuple[Request, int]] = {}
        """Requests, and when they are given up."""

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        match stimulus:
            case Arrived(payload=Welcome(session=session, start=start)) if session == self._session:
                if self._server_start is None:
                    self._server_start = start
                    self._work.connected()
            case Arrived(payload=HungUp(session=session)) if session == self._session:
                self._hang_up(now_ms)
            case Arrived(payload=SimulatedAnswer(session=session, number=number, answer=answer)):
                if session == self._session and number in self._under_way:
                    request, _ = self._under_way.pop(number)
                    effects.append(Note(CallEnded(session, number, answer)))
                    self._work.answered(request, answer, now_ms)
            case WorkRequested(value=value):
                self._work.asked(value, now_ms)
            case TimerDue():
                self._give_up(now_ms)
            case _:
                pass
        return [*effects, *self._go_on(now_ms)]

    def wakeup_ms(self) -> int | None:
        if self._server_start is None:
            return self._hello_ms
        times = [give_up_ms for _, give_up_ms in self._under_way.values()]
        wish_ms = self._work.wakeup_ms()
        return min(times if wish_ms is None else [*times, wish_ms], default=None)

    def _go_on(self, now_ms: int) -> list[Effect]:
        if self._server_start is None:
            if now_ms < self._hello_ms:
                return []
            self._hello_ms = now_ms + HELLO_MS
            return [SendPacket(self._server, SimulatedHello(self._session))]
        effects: list[Effect] = []
        for request in self._work.wishes(len(self._under_way), now_ms):
            self._number += 1
            wait_ms = _wait_ms(request)
            self._under_way[self._number] = (request, now_ms + SILENCE_MS + wait_ms)
            effects += [
                Note(Began(self._session, self._number, request)),
                SendPacket(self._server, SimulatedCall(self._session, self._server_start, self._number, request)),
            ]
        return effects

    def _give_up(self, now_ms: int) -> None:
        """Give up requests without an answer; sometimes the connection too."""
        silent = [number for number, (_, give_up_ms) in self._under_way.items() if give_up_ms <= now_ms]
        for number in silent:
            request, _ = self._under_way.pop(number)
            self._work.answered(request, None, now_ms)
        if silent and self._random.random() < 0.5:
            self._hang_up(now_ms)

    def _hang_up(self, now_ms: int) -> None:
        self._session = SessionId(self._session.start, self._session.count + 1)
        self._server_start = None
        self._hello_ms = now_ms
        under_way, self._under_way = self._under_way, {}
        for request, _ in under_way.values():
            self._work.answered(request, None, now_ms)


def _wait_ms(request: Request) -> int:
    """How long the server may take before it answers at all."""
    if isinstance(request, Receive | LeaseTasks) and request.wait_ms is not None:
        return request.wait_ms
    return 0
