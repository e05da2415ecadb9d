"""Congestion at the broker: a slow subscriber, and a broker short of capacity."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from lavant.control.publishing import PublisherConfig
from lavant.simulation.publisher.config import BrokerConfig, SubscriberConfig, SystemConfig
from lavant.simulation.publisher.load import LoadStep
from lavant.simulation.publisher.system import PublisherSystem

SLOW_SUBSCRIBER = SystemConfig(broker=BrokerConfig(room=100, subscriber=SubscriberConfig(read_ms=40, away_ms=5000)))
"""Comes every five seconds for at most 100 publications, 25 a second: about 11 a second, and less than arrive."""

SHORT_OF_CAPACITY = SystemConfig(broker=BrokerConfig(transfer_ms=25, each_ms=1))
"""At most 38 transfers a second, of one publication each: less than 55 a second; larger transfers would do."""

BUFFER_MAX = 50
DURATION_S = 120.0


class Congested(msgspec.Struct, frozen=True, kw_only=True):
    """Results, summed over the seeds."""

    controller: str
    workers_reserved: int
    received: int
    dropped: int
    published: int
    mean_ms: float
    """Of those that the broker has; without those still waiting."""


def congest(config: PublisherConfig, system: SystemConfig, *, load_per_s: float, seeds: Sequence[int]) -> Congested:
    """One run for each seed."""
    small = msgspec.structs.replace(config, buffer_max=BUFFER_MAX)
    runs = [PublisherSystem(small, (LoadStep(load_per_s, DURATION_S),), system=system, seed=seed) for seed in seeds]
    for run in runs:
        run.run()
    end_ms = round(DURATION_S * 1000)
    return Congested(
        controller=config.tuning.controller,
        workers_reserved=config.workers_reserved,
        received=sum(run.machine.statistics(end_ms).received for run in runs),
        dropped=sum(run.dropped for run in runs),
        published=sum(len(run.taken) for run in runs),
        mean_ms=fmean(taken.latency_us for run in runs for taken in run.taken) / 1000,
    )
