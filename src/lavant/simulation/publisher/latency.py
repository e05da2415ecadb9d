"""Mean latencies of the publisher at constant loads, over seeds: the measure of the publisher paper's Section V-B-1.

The figures are in `figures.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from lavant.control.publishing import PublisherConfig, TuningConfig
from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.distributions import S
from lavant.simulation.publisher.config import SystemConfig
from lavant.simulation.publisher.load import LoadStep
from lavant.simulation.publisher.system import PublisherSystem

AS_IN_THE_PAPER = PublisherConfig(workers=20, workers_reserved=0, transfer_size_max=1)
"""20 workers, none reserved, and a worker takes one publication at a time."""

WARM_UP_S = 20.0
PUBLICATIONS = 2500
"""In each run, after the warm-up; `DURATION_S_MIN` may make it more."""
DURATION_S_MIN = 30.0
_STUDENT_T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""By number of runs, both sides."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """The mean over seeds, and the half-width of its 95 % confidence interval."""

    controller: str
    batch_size: int
    """Initial N; for `fixed`, constant."""
    load_per_s: float
    mean_ms: float
    half_width_ms: float

    def __str__(self) -> str:
        return f"{self.mean_ms:.0f} ± {self.half_width_ms:.0f}"


def tuned(base: PublisherConfig, controller: str, *, batch_size: int = 1) -> PublisherConfig:
    """The same publisher with this controller."""
    tuning = TuningConfig(controller=controller, batch_size=batch_size)
    return msgspec.structs.replace(base, tuning=tuning)


def mean_latency_ms(
    config: PublisherConfig, load_per_s: float, *, seed: int, system: SystemConfig, publications: int
) -> float:
    """Of one run with about so many publications, after the warm-up; infinite if none got through."""
    duration_s = WARM_UP_S + max(publications / load_per_s, DURATION_S_MIN)
    run = PublisherSystem(config, (LoadStep(load_per_s, duration_s),), system=system, seed=seed)
    run.run()
    latencies_us = [taken.latency_us for taken in run.taken if taken.received_us >= WARM_UP_S * S]
    return fmean(latencies_us) / 1000 if latencies_us else math.inf


def measure(
    config: PublisherConfig,
    load_per_s: float,
    *,
    seeds: Sequence[int],
    system: SystemConfig | None = None,
    publications: int = PUBLICATIONS,
) -> Latency:
    """Over all seeds, of which there are 2 to 10.

    >>> print(measure(tuned(AS_IN_THE_PAPER, "eager"), 17.5, seeds=(1, 2), publications=1000))
    310 ± 5
    """
    if len(seeds) not in _STUDENT_T_95:
        raise InvalidValue(f"give 2 to 10 seeds for a confidence interval, got {len(seeds)}")
    surroundings = SystemConfig() if system is None else system
    means_ms = [
        mean_latency_ms(config, load_per_s, seed=seed, system=surroundings, publications=publications) for seed in seeds
    ]
    spread_ms = stdev(means_ms) if math.isfinite(sum(means_ms)) else math.inf
    return Latency(
        controller=config.tuning.controller,
        batch_size=config.tuning.batch_size,
        load_per_s=load_per_s,
        mean_ms=fmean(means_ms),
        half_width_ms=_STUDENT_T_95[len(seeds)] * spread_ms / math.sqrt(len(seeds)),
    )
