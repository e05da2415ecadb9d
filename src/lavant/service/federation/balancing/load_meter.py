"""The load of this broker: publications in, time to match one, bytes out, over the last seconds.

Bytes out are those of the messages that publications put into queues, and of what goes to neighbours. They leave when
consumers fetch them; a consumer that is slow does not make the broker look idle.

Without a stated bandwidth, the highest output of the last hour stands for it. That is what the broker has sent, not
what it could send: it counts as `SEEN_UTILIZATION` of the bandwidth, so that a guess never makes a broker overloaded,
and the bandwidth as `SEEN_BYTES_PER_S_MIN` at least.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.parsing import ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.control.balancing import BrokerLoad
from lavant.service.federation.balancing.press_sampler import PressSampler
from lavant.service.federation.balancing.settings import BrokerCapacity

if TYPE_CHECKING:
    from lavant.service.runtime.broker_runtime import BrokerRuntime

WINDOW_S = 10.0
PROPORTIONAL_S = 0.001
"""A matching delay from here on is taken as proportional to the subscriptions. Below, what every publication costs
dominates, and moving subscriptions changes nothing."""


SEEN_UTILIZATION = 0.8
SEEN_BYTES_PER_S_MIN = 12.5e6
"""100 Mbit/s."""
SEEN_MINUTES = 60


class SeenBandwidth:
    """The highest output in a second of the last hour, minute by minute."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, float]] = deque(maxlen=SEEN_MINUTES)
        """Minutes with their highest output."""
        self._since: tuple[float, int] | None = None

    def observe(self, time_s: float, output_bytes: int) -> None:
        """Take the bytes that were sent since the start, about once a second."""
        if self._since is None:
            self._since = time_s, output_bytes
        elapsed_s = time_s - self._since[0]
        if elapsed_s < 1:
            return
        rate, minute = (output_bytes - self._since[1]) / elapsed_s, int(time_s // 60)
        self._since = time_s, output_bytes
        if self._minutes and self._minutes[-1][0] == minute:
            rate = max(rate, self._minutes.pop()[1])
        self._minutes.append((minute, rate))
        while self._minutes[0][0] <= minute - SEEN_MINUTES:
            self._minutes.popleft()

    @property
    def bytes_per_s(self) -> float:
        highest = max((rate for _, rate in self._minutes), default=0.0)
        return max(SEEN_BYTES_PER_S_MIN, highest / SEEN_UTILIZATION)


class _Totals(msgspec.Struct, frozen=True):
    """Since the start."""

    time_s: float
    cpu_s: float
    arrived: int
    matched: int
    match_s: float
    input_bytes: int
    output_bytes: int


class LoadMeter:
    """A `MatchProbe` that counts, and lets a sampler look."""

    def __init__(
        self,
        service: BrokerRuntime,
        capacity: BrokerCapacity,
        on_failed: Callable[[Exception], None],
        clock_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self.sampler: PressSampler | None = None
        """Looks at publications while a session samples."""
        self._service = service
        self._capacity = capacity
        self._on_failed = on_failed
        self._clock_s, self._cpu_s = clock_s, cpu_s
        self._matched = self._input_bytes = self._output_bytes = 0
        self._match_s = 0.0
        self._delay_s = 0.0
        self._window: deque[_Totals] = deque()
        self._seen = SeenBandwidth()

    async def pace(self, publications: int, started_s: float) -> None:
        """Keep to the matching rate, if there is one."""
        rate = self._capacity.matching_rate_per_s
        if rate is not None:
            pause_s = publications * self.subscriptions / rate - (self._clock_s() - started_s)
            if pause_s > 0:
                await asyncio.sleep(pause_s)

    def matched(self, publications: int, seconds: float) -> None:
        self._matched += publications
        self._match_s += seconds

    def fanned_out(self, namespace: str, publications: Sequence[ParsedPublication], part: FanOutBatch) -> None:
        sizes = np.array([len(each.body) for each in publications], np.int64)
        self._input_bytes += int(sizes.sum())
        self._output_bytes += int(sizes[np.frombuffer(part.places, INTEGERS)].sum())
        if self.sampler is not None:
            try:
                self.sampler.see(namespace, publications, part)
            except Exception as error:  # a mistake in a sample must not end the delivery
                self._on_failed(error)

    @property
    def subscriptions(self) -> int:
        """In the matchers: those of clients, and those that neighbours have told."""
        broker = self._service.server.broker
        return len(broker.subscriptions) + sum(
            len(each.subscriptions) for each in broker.federation.neighbours.values()
        )

    def restart(self) -> None:
        """Forget the load of before: subscriptions have moved."""
        while len(self._window) > 1:
            self._window.popleft()

    def measure(self) -> BrokerLoad:
        """The load of the last `WINDOW_S` seconds. Call it about once a second."""
        ingest = self._service.ingest
        now = _Totals(
            self._clock_s(),
            self._cpu_s(),
            ingest.published + ingest.waiting,
            self._matched,
            self._match_s,
            self._input_bytes,
            self._output_bytes,
        )
        self._seen.observe(now.time_s, now.output_bytes)
        while len(self._window) > 1 and now.time_s - self._window[1].time_s >= WINDOW_S:
            self._window.popleft()
        before = self._window[0] if self._window else now
        self._window.append(now)
        elapsed_s = now.time_s - before.time_s
        matched = now.matched - before.matched
        if matched:
            self._delay_s = (now.match_s - before.match_s) / matched
        if elapsed_s <= 0:
            return self._load(0.0, 0.0, 0.0, 0.0)
        return self._load(
            max(0, now.arrived - before.arrived) / elapsed_s,
            (now.output_bytes - before.output_bytes) / elapsed_s,
            (now.input_bytes - before.input_bytes) / matched if matched else 0.0,
            (now.cpu_s - before.cpu_s) / elapsed_s,
        )

    def _load(self, input_per_s: float, output_per_s: float, bytes_each: float, cpu: float) -> BrokerLoad:
        # With a stated rate the delay is known, and need not follow a move as slowly as the window does.
        rate, subscriptions = self._capacity.matching_rate_per_s, self.subscriptions
        bandwidth = self._capacity.bandwidth_bytes_per_s
        slope_s = None if self._delay_s >= PROPORTIONAL_S else 0.0
        return BrokerLoad(
            subscriptions=subscriptions,
            input_rate_per_s=input_per_s,
            matching_delay_s=self._delay_s if rate is None else subscriptions / rate,
            matching_delay_slope_s=slope_s if rate is None else 1 / rate,
            output_bytes_per_s=output_per_s,
            bandwidth_bytes_per_s=self._seen.bytes_per_s if bandwidth is None else bandwidth,
            publication_bytes=bytes_each,
            cpu=min(1.0, cpu),
            backlog=self._service.ingest.waiting,
        )
