"""A scenario of the reliable queue on a real server: one process for the senders, one for each consumer.

Senders and consumers sleep instead of working, so that a small machine can run many of them. They follow the same load
as the simulated queue (`QueueLoad`), stretched by a factor: the longer a service, the less the machine's own delays
count. A lost delivery is one that its consumer does not acknowledge.

In the model nobody waits for a request: a message enters the queue when it is sent, and a consumer is free when its
service ends. So messages are sent and acknowledged on connections of their own, beside the thread that keeps the time.
A consumer asks for the next message at once, and both requests become durable together.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.synchronize import Event
from typing import NamedTuple

import numpy as np

from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX
from lavant.cli.reports.demonstration.server import served
from lavant.client.client import Client, connect
from lavant.client.values.queues import Delivery, QueueConfig
from lavant.core.errors import InvalidValue, MissingComponent, PartlyRefused, StaleReceipt
from lavant.models.reliable_queue.prediction import require_stable
from lavant.models.reliable_queue.scenario import QueueScenario, TimerStart
from lavant.simulation.reliable_queue.load import QueueLoad, draw_load
from lavant.simulation.reliable_queue.observed import MESSAGES_MIN, ObservedQueue, observed
from lavant.simulation.reliable_queue.queue_machine import WARM_UP

QUEUE = "messages"
CONSUMERS_MAX = 64
LIVE_MESSAGES_MIN = math.ceil(MESSAGES_MIN / (1.0 - WARM_UP))
LENGTH_S_MAX = 3600.0
WAIT_S = 0.5
BEGIN_S = 0.2
"""From the moment at which all processes are connected to the first message."""
LATE_S_MAX = 120.0
SENDING_MAX = 4
"""Messages that are on their way to the queue at once."""


class _Starter:
    """Lets all processes of a run begin together, once each of them is connected."""

    def __init__(self, context: ForkContext) -> None:
        self._connected = context.Semaphore(0)
        self._begin = context.Event()
        self._begin_s = context.Value("d", 0.0)

    def wait_s(self) -> float:
        """Called by a process that is connected: the time of the first message."""
        self._connected.release()
        self._begin.wait()
        return float(self._begin_s.value)

    def begin_s(self, processes: int) -> float:
        """Called by the parent: the same time, when so many processes are connected."""
        for _ in range(processes):
            if not self._connected.acquire(timeout=LATE_S_MAX):
                raise MissingComponent(f"a process of the live run did not connect within {LATE_S_MAX:g} s")
        self._begin_s.value = time.monotonic() + BEGIN_S
        self._begin.set()
        return float(self._begin_s.value)


class _Attempt(NamedTuple):
    message: int
    start_s: float
    end_s: float
    is_lost: bool


def run_queue(scenario: QueueScenario, *, messages: int, seed: int, stretch: float = 1.0) -> ObservedQueue:
    """Run the scenario against a temporary server; times are divided by the stretch again."""
    require_stable(scenario)
    require_live(scenario, messages=messages)
    load = draw_load(scenario, messages, np.random.default_rng(seed))
    length_s = float(load.enters_s[-1]) * stretch
    if length_s > LENGTH_S_MAX:
        raise InvalidValue(
            f"a live run takes up to {LENGTH_S_MAX:g} s, this one would take {length_s:.0f} s; give fewer messages"
        )
    with served() as url:
        attempts = _attempts(url, scenario, load, stretch)
    delivered_s = np.full(messages, np.inf)
    for attempt in attempts:
        if not attempt.is_lost:
            delivered_s[attempt.message] = min(delivered_s[attempt.message], attempt.end_s / stretch)
    complete = sum(not attempt.is_lost for attempt in attempts)
    busy_s = sum(attempt.end_s - attempt.start_s for attempt in attempts) / stretch
    first = int(WARM_UP * messages)
    return observed(
        delivered_s[first:] + scenario.link_s - load.produced_s[first:],
        attempts=len(attempts) / messages,
        duplicates=(complete - messages) / messages,
        utilisation=busy_s / (scenario.consumers.count * float(load.enters_s[-1])),
    )


def require_live(scenario: QueueScenario, *, messages: int) -> None:
    """Raise if the scenario cannot be run live with so many messages, before anything is started."""
    if scenario.consumers.count > CONSUMERS_MAX:
        raise InvalidValue(f"a live run has up to {CONSUMERS_MAX} consumers, got {scenario.consumers.count}")
    if messages < LIVE_MESSAGES_MIN:
        raise InvalidValue(f"a live run needs at least {LIVE_MESSAGES_MIN} messages for its interval, got {messages}")


def _attempts(url: str, scenario: QueueScenario, load: QueueLoad, stretch: float) -> list[_Attempt]:
    """Start all processes, wait until the queue is empty, and collect what consumers saw."""
    timeout_ms = max(1, round(1000 * scenario.visibility_s * stretch))
    lease_ms = VISIBILITY_MS_MAX if scenario.timer is TimerStart.SEND else timeout_ms
    lost_ms, returns_s = _lost_ms(scenario, timeout_ms), 2.0 * scenario.link_s * stretch
    context = get_context("fork")
    is_over = context.Event()
    starter = _Starter(context)
    with connect(url) as client:
        client.create_queue(QUEUE, QueueConfig(visibility_s=min(lease_ms, VISIBILITY_MS_MAX) / SECOND_MS))
        sender = context.Process(target=_send, args=(url, load, starter, stretch), daemon=True)
        sender.start()
        consumers = [
            _start_consumer(context, url, load, starter, stretch, is_over, lost_ms, returns_s)
            for _ in range(scenario.consumers.count)
        ]
        try:
            begin_s = starter.begin_s(1 + len(consumers))
            _wait(client, sender, load, begin_s, stretch)
        finally:
            is_over.set()
            found = [attempt for pipe, _ in consumers for attempt in _received(pipe)]
            for process in (sender, *(process for _, process in consumers)):
                process.join(LATE_S_MAX)
    return found


def _lost_ms(scenario: QueueScenario, timeout_ms: int) -> int | None:
    """The visibility that a consumer sets when a delivery is lost, if the timer starts then."""
    if scenario.timer is TimerStart.RECEIVE:
        return None
    return 0 if scenario.visibility_s == 0 else timeout_ms


def _start_consumer(
    context: ForkContext,
    url: str,
    load: QueueLoad,
    starter: _Starter,
    stretch: float,
    is_over: Event,
    lost_ms: int | None,
    returns_s: float,
) -> tuple[Connection, ForkProcess]:
    here, there = context.Pipe(duplex=False)
    arguments = (url, load, starter, stretch, is_over, lost_ms, returns_s, there)
    process = context.Process(target=_consume, args=arguments, daemon=True)
    process.start()
    there.close()
    return here, process


def _wait(client: Client, sender: ForkProcess, load: QueueLoad, begin_s: float, stretch: float) -> None:
    """Until all messages are sent and the queue is empty."""
    until_s = begin_s + float(load.enters_s[-1]) * stretch + LATE_S_MAX
    queue = client.queue(QUEUE)
    while sender.is_alive() or _left(queue.describe().figures):
        if time.monotonic() > until_s:
            raise MissingComponent(
                f"the run is {LATE_S_MAX:g} s late: the machine cannot keep up; try a larger --stretch"
            )
        time.sleep(0.05)


def _left(figures: object) -> int:
    names = ("visible", "in_flight", "delayed")
    return sum(int(getattr(figures, name)) for name in names)


def _send(url: str, load: QueueLoad, starter: _Starter, stretch: float) -> None:
    order = np.argsort(load.enters_s, kind="stable").tolist()
    with ExitStack() as stack:
        queues = [stack.enter_context(connect(url)).queue(QUEUE) for _ in range(SENDING_MAX)]
        beside = stack.enter_context(ThreadPoolExecutor(SENDING_MAX))
        sent: list[Future[object]] = []
        begin_s = starter.wait_s()
        for number, message in enumerate(order):
            _sleep_until(begin_s + float(load.enters_s[message]) * stretch)
            sent.append(beside.submit(queues[number % SENDING_MAX].send, message.to_bytes(8, "big")))
        for each in sent:
            each.result()


def _sleep_until(deadline_s: float) -> None:
    time.sleep(max(0.0, deadline_s - time.monotonic()))


def _consume(
    url: str,
    load: QueueLoad,
    starter: _Starter,
    stretch: float,
    is_over: Event,
    lost_ms: int | None,
    returns_s: float,
    results: Connection,
) -> None:
    done: list[tuple[int, float, float, bool]] = []
    with connect(url) as client, connect(url) as other, ThreadPoolExecutor(1) as beside:
        queue, acknowledged = client.queue(QUEUE), other.queue(QUEUE)

        def acknowledge(leased: Delivery, at_s: float) -> None:
            _sleep_until(at_s)
            with suppress(PartlyRefused, StaleReceipt):  # somebody else holds it: the timeout was too short
                acknowledged.acknowledge(leased)

        begin_s = starter.wait_s()
        while not is_over.is_set():
            for leased in queue.receive(count=1, wait_s=WAIT_S):
                start_s = time.monotonic()
                message = int.from_bytes(leased.body, "big")
                service_s, is_lost = load.attempt(message, leased.receive_count)
                _sleep_until(start_s + service_s * stretch)
                done.append((message, start_s - begin_s, time.monotonic() - begin_s, is_lost))
                if not is_lost:
                    beside.submit(acknowledge, leased, time.monotonic() + returns_s)
                elif lost_ms is not None:
                    queue.change_visibility(leased, visibility_s=lost_ms / 1000)
    results.send(done)
    results.close()


def _received(pipe: Connection) -> list[_Attempt]:
    try:
        return [_Attempt(*attempt) for attempt in pipe.recv()]
    except EOFError:
        raise MissingComponent("a consumer of the live run has died; its message is above") from None
    finally:
        pipe.close()
