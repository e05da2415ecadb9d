"""How a system is measured: as fast as its subscribers can take it, then at half of that, say, with the time it takes.

    publisher ──► system ──► subscribers
        ▲                        │ how many came, and how long each took
        └──── not too far ahead ─┘

Publisher and subscribers are processes of their own. Delays are measured in slices; one in which the disk became slow
or stalled, which on a shared machine it does, says nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from array import array
from collections.abc import Awaitable, Callable
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import uvloop
from numpy.typing import NDArray
from tests.bench.disk import Probe
from tests.bench.timing import processor_s

AHEAD = 20_000
"""Notifications that may be under way."""
WARM_UP = 500
AT_ONCE = 20
"""Publications in a request, and requests under way, when it is to be fast."""
UNDER_WAY = 16
PAUSE_S = 0.001
REPORT_S = 0.005
WAIT_S_MAX = 60.0
SLICE_S = 2.0
TRIES = 4
"""As many slices are measured at most, for each that is wanted."""

_context = multiprocessing.get_context("spawn")


class Publisher(Protocol):
    async def publish(self, start: int, times_s: list[float]) -> None:
        """Publications number `start` and following, each with its time; returns when the system has them."""
        ...

    async def close(self) -> None: ...


class Subscribers(Protocol):
    async def listen(self, notify: Callable[[float], None]) -> None:
        """Call `notify` with the time that each notification carries, until cancelled."""
        ...


def _never() -> int:
    return 0


class System(NamedTuple):
    """A system that runs; all are called in the processes of publisher or subscribers."""

    name: str
    publisher: Callable[[], Awaitable[Publisher]]
    subscribers: Callable[[], Awaitable[Subscribers]]
    stalls: Callable[[], int] = _never
    """How often its disk has stalled so far."""
    processes: tuple[int, ...] = ()
    """Its servers, if their processor time is of interest."""


class Delays(NamedTuple):
    """At one rate."""

    p50_ms: float
    p99_ms: float
    processor_us: float
    """Processor time of all servers for a publication."""


class Figures(NamedTuple):
    publications_per_s: float
    notifications_per_s: float
    delays: list[Delays]
    """At each share of the rate."""
    slices: int
    """That count, and those that do not."""
    discarded: int

    @property
    def p50_ms(self) -> float:
        return self.delays[0].p50_ms

    @property
    def p99_ms(self) -> float:
        return self.delays[0].p99_ms


class Slice(NamedTuple):
    share: float
    began_s: float
    ended_s: float
    is_quick: bool
    processor_us: float


def measure(
    system: System,
    probe_path: Path,
    *,
    seconds: float,
    shares: tuple[float, ...] = (0.5,),
    of_rate: float | None = None,
) -> Figures:
    """The highest rate, and the delays at half of it, or at other shares; `of_rate` is the rate of another system, with
    which this one is compared."""
    received = _context.Value("q", 0)
    stop, ready, times = _context.Event(), _context.Event(), _context.Queue()
    listening = _context.Process(target=_listen, args=(system, received, ready, stop, times))
    listening.start()
    try:
        if not ready.wait(WAIT_S_MAX):
            raise RuntimeError(f"subscribers of {system.name} do not come up")
        answers = _context.Queue()
        publishing = _context.Process(
            target=_publish, args=(system, received, probe_path, seconds, shares, of_rate, answers)
        )
        publishing.start()
        rate, per_publication, slices = answers.get()
        publishing.join()
    finally:
        stop.set()
    arrived = np.array(times.get(timeout=WAIT_S_MAX))
    listening.join()
    kept = [_kept([each for each in slices if each.share == share]) for share in shares]
    delays = [_delays(arrived[0::2], arrived[1::2], each) for each in kept]
    count = sum(map(len, kept))
    return Figures(rate, rate * per_publication, delays, count, len(slices) - count)


def _kept(slices: list[Slice]) -> list[Slice]:
    quick = [each for each in slices if each.is_quick]
    return quick if quick else slices


def _delays(sent_s: NDArray[np.float64], delays_s: NDArray[np.float64], slices: list[Slice]) -> Delays:
    within = np.any([(sent_s >= each.began_s) & (sent_s < each.ended_s) for each in slices], axis=0)
    p50, p99 = np.quantile(1e3 * delays_s[within], (0.5, 0.99))
    return Delays(float(p50), float(p99), float(np.mean([each.processor_us for each in slices])))


def _listen(system: System, received: Synchronized[int], ready: Any, stop: Any, times: Any) -> None:
    pairs = array("d")

    async def work() -> None:
        subscribers = await system.subscribers()

        def notify(sent_s: float) -> None:
            pairs.append(sent_s)
            pairs.append(time.time() - sent_s)

        listening = asyncio.ensure_future(subscribers.listen(notify))
        ready.set()
        while not stop.is_set() and not listening.done():
            await asyncio.sleep(REPORT_S)
            received.value = len(pairs) // 2
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    uvloop.run(work())
    times.put(pairs)


def _publish(
    system: System,
    received: Synchronized[int],
    probe_path: Path,
    seconds: float,
    shares: tuple[float, ...],
    of_rate: float | None,
    answers: Any,
) -> None:
    async def work() -> tuple[float, float, list[Slice]]:
        publisher = await system.publisher()
        per_publication = await _warm_up(publisher, received)
        rate = await _as_fast_as_possible(publisher, received, per_publication, seconds)
        await _settled(received)
        base = rate if of_rate is None else of_rate
        slices = [each for share in shares for each in await at_share(publisher, share, share * base)]
        await publisher.close()
        return rate, per_publication, slices

    async def at_share(publisher: Publisher, share: float, rate: float) -> list[Slice]:
        slices: list[Slice] = []
        wanted = int(seconds / SLICE_S)
        while sum(each.is_quick for each in slices) < wanted and len(slices) < TRIES * wanted:
            probe.wait_until_quick()
            stalls, used_s = system.stalls(), sum(map(processor_s, system.processes))
            began_s = time.time()
            await _at(publisher, rate, SLICE_S)
            ended_s = time.time()
            is_quick = probe.is_quick() and system.stalls() == stalls
            await _settled(received)
            used_s = sum(map(processor_s, system.processes)) - used_s
            slices.append(Slice(share, began_s, ended_s, is_quick, 1e6 * used_s / (rate * SLICE_S)))
        return slices

    probe = Probe(probe_path)
    answers.put(uvloop.run(work()))
    probe.close()


async def _warm_up(publisher: Publisher, received: Synchronized[int]) -> float:
    """How many notifications there are for a publication."""
    before = received.value
    for number in range(WARM_UP):
        await publisher.publish(number, [time.time()])
    await _settled(received)
    return (received.value - before) / WARM_UP


async def _settled(received: Synchronized[int]) -> None:
    """Until nothing more comes."""
    before, quiet = -1, 0
    while quiet < 10:
        await asyncio.sleep(0.05)
        quiet = quiet + 1 if received.value == before else 0
        before = received.value


async def _as_fast_as_possible(
    publisher: Publisher, received: Synchronized[int], per_publication: float, seconds: float
) -> float:
    start, base, sent = time.monotonic(), received.value, 0
    running_job: set[asyncio.Task[None]] = set()
    while time.monotonic() - start < seconds:
        if sent * per_publication - (received.value - base) > AHEAD:
            await asyncio.sleep(0.001)
            continue
        task = asyncio.ensure_future(publisher.publish(sent, [time.time()] * AT_ONCE))
        running_job.add(task)
        task.add_done_callback(running_job.discard)
        sent += AT_ONCE
        if len(running_job) >= UNDER_WAY:
            await asyncio.wait(running_job, return_when=asyncio.FIRST_COMPLETED)
    done = (received.value - base) / per_publication
    rate = done / (time.monotonic() - start)
    if running_job:
        await asyncio.wait(running_job)
    return rate


async def _at(publisher: Publisher, rate: float, seconds: float) -> None:
    """Evenly spread, each with the time at which it is due; what is due goes out together, as soon as it can."""
    start_s, sent, count = time.time(), 0, int(rate * seconds)
    running_job: set[asyncio.Task[None]] = set()
    while sent < count:
        due = min(count, int((time.time() - start_s) * rate) + 1)
        if due == sent or len(running_job) >= UNDER_WAY:
            await asyncio.sleep(PAUSE_S)
            continue
        times_s = [start_s + number / rate for number in range(sent, due)]
        task = asyncio.ensure_future(publisher.publish(sent, times_s))
        running_job.add(task)
        task.add_done_callback(running_job.discard)
        sent = due
    if running_job:
        await asyncio.wait(running_job)
