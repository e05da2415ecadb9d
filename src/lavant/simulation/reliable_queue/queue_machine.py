"""A scenario of the reliable queue with Lavant's own queue machine, in virtual time.

Every send, receive, acknowledgement and change of visibility is a command of `lavant.broker.queues.machine`, and
messages become visible when the machine says so. The machine counts whole milliseconds, so time is stretched: a mean
service is 10,000 of them.

    send ──► visible ──receive──► in flight ──acknowledge──► gone
                ▲                     │
                └──── timeout ────────┘ lost, or slower than the timeout
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count

import numpy as np

from lavant.broker.protocol.queue_config import VISIBILITY_MS_MAX, QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    CreateQueue,
    Delivery,
    Receipt,
    Receive,
    Received,
    Send,
    SendEntry,
    VisibilityChange,
)
from lavant.broker.queues.machine import Queues
from lavant.models.reliable_queue.prediction import require_stable
from lavant.models.reliable_queue.scenario import QueueScenario, TimerStart
from lavant.simulation.reliable_queue.load import QueueLoad, draw_load
from lavant.simulation.reliable_queue.observed import ObservedQueue, observed

QUEUE = "messages"
SERVICE_MS = 10_000.0
WARM_UP = 0.1


def simulate_queue(scenario: QueueScenario, *, messages: int, seed: int) -> ObservedQueue:
    """Run the scenario until all messages are delivered; the first tenth of them is the warm-up.

    >>> from lavant.models.reliable_queue import Phase, ServiceTime
    >>> scenario = QueueScenario(arrival_rate_per_s=5.0, consumers=Phase(count=1, service=ServiceTime(mean_s=0.1)))
    >>> found = simulate_queue(scenario, messages=20_000, seed=1)  # M/M/1: 1/(μ − λ) = 0.2 s
    >>> abs(found.delivery_s.mean - 0.2) < found.delivery_s.half_width, found.attempts
    (True, 1.0)
    """
    require_stable(scenario)
    run = _Run(scenario, draw_load(scenario, messages, np.random.default_rng(seed)))
    run.go()
    first = int(WARM_UP * messages)
    return observed(
        run.delivered_s[first:] - run.load.produced_s[first:],
        attempts=run.attempts / messages,
        duplicates=run.duplicates / messages,
        utilisation=run.busy_s / (scenario.consumers.count * run.load.enters_s[-1]),
        waiting=run.waited_s / run.load.enters_s[-1],
    )


class _Run:
    """The consumers and the calendar around one machine."""

    def __init__(self, scenario: QueueScenario, load: QueueLoad) -> None:
        self.load = load
        self.delivered_s = np.full(len(load.produced_s), np.inf)
        self.attempts = self.duplicates = 0
        self.busy_s = self.waited_s = 0.0
        self._visible_s = load.sent_s.copy()
        """Since when each message waits for a consumer, or, in-order, for older messages."""
        self._scenario = scenario
        self._ms_per_s = SERVICE_MS / scenario.consumers.service.mean_s
        if scenario.visibility_s * self._ms_per_s > VISIBILITY_MS_MAX:
            self._ms_per_s = VISIBILITY_MS_MAX / scenario.visibility_s
        self._timeout_ms = round(scenario.visibility_s * self._ms_per_s)
        self._lease_ms = VISIBILITY_MS_MAX if scenario.timer is TimerStart.SEND else max(1, self._timeout_ms)
        self._queues = Queues()
        self._queues.handle(CreateQueue(QUEUE, QueueConfig(visibility_ms=self._lease_ms)), 0)
        self._idle = scenario.consumers.count
        self._ends: list[tuple[float, int, Delivery, bool]] = []
        """Services in progress: their end, a number that breaks ties, the message, and whether it is lost."""
        self._order = count()
        self._acknowledgements: deque[tuple[float, Receipt]] = deque()
        """On their way back over the link, in the order of time."""

    def go(self) -> None:
        enters = np.argsort(self.load.enters_s, kind="stable")
        times_s = self.load.enters_s[enters].tolist()
        for time_s, message in zip(times_s, enters.tolist(), strict=True):
            self._until(time_s)
            self._queues.handle(Send(QUEUE, [SendEntry(message.to_bytes(8, "big"))]), self._ms(time_s))
            self._receive(time_s)
        self._until(np.inf)

    def _until(self, until_s: float) -> None:
        """Everything before a time: ends of services, and messages that become visible while a consumer is idle."""
        while True:
            end_s = self._ends[0][0] if self._ends else np.inf
            wakeup_ms = self._queues.wakeup_ms() if self._idle else None
            visible_s = np.inf if wakeup_ms is None else wakeup_ms / self._ms_per_s
            if min(end_s, visible_s) >= until_s:
                return
            if end_s <= visible_s:
                _, _, delivery, is_lost = heappop(self._ends)
                self._complete(end_s, delivery, is_lost=is_lost)
                self._idle += 1
                self._receive(end_s)
            else:
                self._receive(visible_s)

    def _receive(self, now_s: float) -> None:
        while self._acknowledgements and self._acknowledgements[0][0] <= now_s:
            _, receipt = self._acknowledgements.popleft()
            self._queues.handle(Acknowledge(QUEUE, [receipt]), self._ms(now_s))
        while self._idle:
            answer = self._queues.handle(Receive(QUEUE), self._ms(now_s))
            assert isinstance(answer, Received)
            if not answer.deliveries:
                return
            (delivery,) = answer.deliveries
            message = int.from_bytes(delivery.body, "big")
            service_s, is_lost = self.load.attempt(message, delivery.receive_count)
            self._idle -= 1
            self.attempts += 1
            self.waited_s += now_s - self._visible_s[message]
            self._visible_s[message] = now_s + self._scenario.visibility_s
            self.busy_s += service_s
            heappush(self._ends, (now_s + service_s, next(self._order), delivery, is_lost))

    def _complete(self, now_s: float, delivery: Delivery, *, is_lost: bool) -> None:
        if is_lost:
            if self._scenario.timer is TimerStart.SEND:
                message = int.from_bytes(delivery.body, "big")
                self._visible_s[message] = now_s + self._scenario.visibility_s
                change = VisibilityChange(delivery.receipt, self._timeout_ms)
                self._queues.handle(ChangeVisibility(QUEUE, [change]), self._ms(now_s))
            return
        message = int.from_bytes(delivery.body, "big")
        link_s = self._scenario.link_s
        if np.isinf(self.delivered_s[message]):  # services end in the order of time, so the first is the earliest
            self.delivered_s[message] = now_s + link_s
        else:
            self.duplicates += 1
        self._acknowledgements.append((now_s + 2.0 * link_s, delivery.receipt))

    def _ms(self, time_s: float) -> int:
        return round(time_s * self._ms_per_s)
