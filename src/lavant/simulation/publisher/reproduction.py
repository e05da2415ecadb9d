"""Reproduces the experiments of "Auto-tuned Publisher in a Pub/Sub System", Section V, with the default controller
added.

| experiment | paper |
| --- | --- |
| constant loads, with and without tuning | V-B-1, Figures 8 and 9 |
| the load of Table II, which changes in steps | V-B-2, Figure 11 |
| a slow subscriber, with and without reserved workers | V-B-3 |
| a broker that is short of capacity | an addition |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

import msgspec

from lavant.control.publishing import PublisherConfig, TuningConfig
from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.distributions import S
from lavant.simulation.publisher.config import SystemConfig
from lavant.simulation.publisher.congestion import SHORT_OF_CAPACITY, SLOW_SUBSCRIBER, Congested, congest
from lavant.simulation.publisher.load import LoadStep
from lavant.simulation.publisher.steps import StepResponse, respond
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


def best(latencies: Iterable[Latency]) -> Latency:
    return min(latencies, key=lambda latency: latency.mean_ms)


SIZES = {1.75: (1, 2, 3), 17.5: (4, 5, 6, 7), 35.0: (8, 9, 10, 11, 12), 55.0: (13, 14, 15, 16, 17)}
"""Candidates for the best N at each load: latency over N has one minimum, within these."""

EXPECTED_FIXED_MS = {1.75: 313, 17.5: 408, 35.0: 420, 55.0: 434}
EXPECTED_AIMD_MS = {1.75: 424, 17.5: 549, 35.0: 581, 55.0: 621}
"""From simulations with other code, of the same system and reading of the paper; the paper has no numbers."""

STEP_SEEDS = range(1, 13)
CONGESTION_SEEDS = range(1, 6)
SLOW_LOAD_PER_S = 17.5
SHORT_LOAD_PER_S = 55.0
SHORT = msgspec.structs.replace(AS_IN_THE_PAPER, workers_reserved=3, transfer_size_max=500)
"""A worker may take several publications at once: one by one, no controller could help this broker."""
SLOW_CONTROLLERS = (("fixed", 5), ("aimd", 1), ("eager", 1))
SHORT_CONTROLLERS = (("fixed", 15), ("aimd", 1), ("eager", 1))
"""With the initial N: for `fixed`, about the best at this load."""


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
    """One constant load."""

    load_per_s: float
    best_fixed: Latency
    aimd: Latency
    eager: Latency
    expected_fixed_ms: int
    expected_aimd_ms: int

    @property
    def eager_below_best(self) -> float:
        return 1 - self.eager.mean_ms / self.best_fixed.mean_ms


class PublisherReproduction(msgspec.Struct, frozen=True, kw_only=True):
    """All results."""

    loads: list[LoadRow]
    steps: dict[str, list[StepResponse]]
    slow_subscriber: list[Congested]
    short_of_capacity: list[Congested]


def tasks() -> int:
    """How often `report` is called."""
    return sum(len(sizes) + 2 for sizes in SIZES.values()) + 2 + 2 * len(SLOW_CONTROLLERS) + len(SHORT_CONTROLLERS)


def reproduce(*, seeds: range, report: Callable[[str], None] = lambda done: None) -> PublisherReproduction:
    """Run all experiments; `report` is told what has just been done."""

    def latency(controller: str, load_per_s: float, batch_size: int = 1) -> Latency:
        found = measure(tuned(AS_IN_THE_PAPER, controller, batch_size=batch_size), load_per_s, seeds=seeds)
        report(f"{controller} at {load_per_s:g} a second")
        return found

    def steps(controller: str) -> list[StepResponse]:
        found = respond(tuned(AS_IN_THE_PAPER, controller), seeds=STEP_SEEDS)
        report(f"{controller} under a load in steps")
        return found

    def congestion(config: PublisherConfig, *, is_slow: bool) -> Congested:
        system, load_per_s = (SLOW_SUBSCRIBER, SLOW_LOAD_PER_S) if is_slow else (SHORT_OF_CAPACITY, SHORT_LOAD_PER_S)
        found = congest(config, system, load_per_s=load_per_s, seeds=CONGESTION_SEEDS)
        report(f"{config.tuning.controller} under congestion")
        return found

    reserving = [msgspec.structs.replace(AS_IN_THE_PAPER, workers_reserved=count) for count in (0, 3)]
    return PublisherReproduction(
        loads=[
            LoadRow(
                load_per_s=load,
                best_fixed=best([latency("fixed", load, size) for size in sizes]),
                aimd=latency("aimd", load),
                eager=latency("eager", load),
                expected_fixed_ms=EXPECTED_FIXED_MS[load],
                expected_aimd_ms=EXPECTED_AIMD_MS[load],
            )
            for load, sizes in SIZES.items()
        ],
        steps={controller: steps(controller) for controller in ("aimd", "eager")},
        slow_subscriber=[
            congestion(tuned(base, controller, batch_size=size), is_slow=True)
            for controller, size in SLOW_CONTROLLERS
            for base in reserving
        ],
        short_of_capacity=[
            congestion(tuned(SHORT, name, batch_size=size), is_slow=False) for name, size in SHORT_CONTROLLERS
        ],
    )
