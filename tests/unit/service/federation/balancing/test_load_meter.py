"""The load of a live broker: rates and sizes over the last seconds, and the stated capacities."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication
from lavant.broker.subscriptions.routing import FanOutBatch
from lavant.control.balancing import BalancingConfig
from lavant.control.balancing.detection import overload
from lavant.core.errors import InvalidValue
from lavant.service.federation.balancing.load_meter import (
    PROPORTIONAL_S,
    SEEN_BYTES_PER_S_MIN,
    SEEN_UTILIZATION,
    WINDOW_S,
    LoadMeter,
)
from lavant.service.federation.balancing.press_sampler import PressSampler
from lavant.service.federation.balancing.settings import BrokerCapacity


class Bench:
    """A meter, with a clock and a broker to turn by hand."""

    def __init__(self, *, subscriptions: int = 4, routes: int = 6, **capacity: Any) -> None:
        self.now_s = self.cpu_s = 0.0
        self.ingest = SimpleNamespace(published=0, waiting=0)
        neighbours = {"B2": SimpleNamespace(subscriptions=range(routes))}
        broker = SimpleNamespace(subscriptions=range(subscriptions), federation=SimpleNamespace(neighbours=neighbours))
        service: Any = SimpleNamespace(ingest=self.ingest, server=SimpleNamespace(broker=broker))
        self.failures: list[Exception] = []
        clocks = (lambda: self.now_s, lambda: self.cpu_s)
        self.meter = LoadMeter(service, BrokerCapacity(**capacity), self.failures.append, *clocks)

    def publish(self, size: int, queues: int, seconds: float) -> None:
        """One publication that so many queues get."""
        self.ingest.published += 1
        self.meter.matched(1, seconds)
        places, ends = np.zeros(queues, INTEGERS), np.arange(1, queues + 1).astype(INTEGERS)
        part = FanOutBatch(0, 1, ends.tobytes(), ends.tobytes(), places.tobytes(), np.array([queues > 0]))
        self.meter.fanned_out("", [ParsedPublication("id", PLAIN, {}, b"x" * size)], part)


def test_rates_are_those_of_the_last_seconds() -> None:
    bench = Bench(bandwidth_bytes_per_s=10_000)
    bench.meter.measure()
    for _ in range(40):
        for _ in range(5):
            bench.publish(100, 3, 0.002)
        bench.now_s += 1
        bench.cpu_s += 0.25
        load = bench.meter.measure()
    assert load.input_rate_per_s == pytest.approx(5)
    assert load.matching_delay_s == pytest.approx(0.002)
    assert load.input_utilization == pytest.approx(0.01)
    assert load.publication_bytes == 100
    assert load.output_bytes_per_s == pytest.approx(1500)
    assert load.output_utilization == pytest.approx(0.15)
    assert load.cpu == pytest.approx(0.25)
    assert load.subscriptions == 10
    for _ in range(round(WINDOW_S) + 1):
        bench.now_s += 1
        load = bench.meter.measure()
    assert (load.input_rate_per_s, load.output_bytes_per_s) == (0, 0)
    assert load.matching_delay_s == pytest.approx(0.002), "what a publication would take"


def test_publications_that_wait_have_arrived() -> None:
    bench = Bench()
    bench.meter.measure()
    bench.ingest.waiting, bench.now_s = 30, 3.0
    load = bench.meter.measure()
    assert (load.input_rate_per_s, load.backlog) == (10, 30)


@pytest.mark.parametrize(("delay_s", "slope_s"), [(PROPORTIONAL_S / 2, 0.0), (PROPORTIONAL_S * 2, None)])
def test_a_short_delay_does_not_depend_on_the_subscriptions(delay_s: float, slope_s: float | None) -> None:
    bench = Bench()
    bench.meter.measure()
    bench.publish(10, 0, delay_s)
    bench.now_s = 1.0
    assert bench.meter.measure().matching_delay_slope_s == slope_s


def test_a_stated_matching_rate_is_kept_and_known() -> None:
    bench = Bench(matching_rate_per_s=1000.0)
    load = bench.meter.measure()
    assert (load.matching_delay_s, load.matching_delay_slope_s) == (0.01, 0.001)
    pauses: list[float] = []

    async def run() -> None:
        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", sleep)
            bench.now_s = 5.0
            await bench.meter.pace(20, started_s=4.95)
            await bench.meter.pace(20, started_s=4.5)
            await Bench().meter.pace(20, started_s=0.0)

    asyncio.run(run())
    assert pauses == [pytest.approx(0.15)], "10 subscriptions and 20 publications take 0.2 s"


def test_without_a_stated_bandwidth_the_highest_output_of_an_hour_stands_for_it() -> None:
    bench = Bench()
    assert bench.meter.measure().bandwidth_bytes_per_s == SEEN_BYTES_PER_S_MIN
    highest = 2 * SEEN_BYTES_PER_S_MIN
    for second in range(1, 7200):
        if second == 30:
            bench.publish(round(highest / 2), 2, 0.1)
        bench.now_s = float(second)
        load = bench.meter.measure()
        is_remembered = 30 <= second < 3600
        assert load.bandwidth_bytes_per_s == (highest / SEEN_UTILIZATION if is_remembered else SEEN_BYTES_PER_S_MIN)


def test_a_bandwidth_that_was_only_seen_overloads_nobody() -> None:
    bench = Bench()
    bench.meter.measure()
    for second in range(1, 40):
        bench.publish(10_000_000, 3, 0.1)
        bench.now_s = float(second)
        load = bench.meter.measure()
    assert load.output_utilization == pytest.approx(SEEN_UTILIZATION)
    assert overload(load, BalancingConfig().overload_low) is None


def test_a_mistake_in_a_sample_is_told_and_the_delivery_goes_on() -> None:
    bench = Bench()
    bench.meter.sampler = PressSampler("s", ["a"], [1], {}, 10)
    bench.meter.sampler._bits = np.zeros((0, 10), np.bool_)
    bench.publish(10, 3, 0.1)
    assert [type(each) for each in bench.failures] == [IndexError]


@pytest.mark.parametrize(
    "given", [{"bandwidth_bytes_per_s": 0}, {"matching_rate_per_s": 0.0}, {"matching_rate_per_s": math.nan}]
)
def test_capacities_are_positive(given: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="must be positive"):
        BrokerCapacity(**given)
