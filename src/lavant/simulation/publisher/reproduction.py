"""The experiments of "Auto-tuned Publisher in a Pub/Sub System", Section V, with the default controller beside.

| experiment | paper |
| --- | --- |
| constant loads, with and without tuning | V-B-1, Figures 8 and 9 |
| the load of Table II, which changes in steps | V-B-2, Figure 11 |
| a slow subscriber, with and without reserved workers | V-B-3 |
| a broker that is short of capacity | an addition |
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lavant.control.publishing import PublisherConfig
from lavant.simulation.publisher.congestion import SHORT_OF_CAPACITY, SLOW_SUBSCRIBER, Congested, congest
from lavant.simulation.publisher.latency import AS_IN_THE_PAPER, Latency, best, measure, tuned
from lavant.simulation.publisher.steps import StepResponse, respond

SIZES = {1.75: (1, 2, 3), 17.5: (4, 5, 6, 7), 35.0: (8, 9, 10, 11, 12), 55.0: (13, 14, 15, 16, 17)}
"""N to look for the best at each load: latency over N has one minimum, and it is within these."""

EXPECTED_FIXED_MS = {1.75: 313, 17.5: 408, 35.0: 420, 55.0: 434}
EXPECTED_AIMD_MS = {1.75: 424, 17.5: 549, 35.0: 581, 55.0: 621}
"""From simulations with other code, of the same system and the same readings of the paper; the paper has no numbers."""

STEP_SEEDS = range(1, 13)
CONGESTION_SEEDS = range(1, 6)
SLOW_LOAD_PER_S = 17.5
SHORT_LOAD_PER_S = 55.0
SHORT = msgspec.structs.replace(AS_IN_THE_PAPER, workers_reserved=3, transfer_size_max=500)
"""Where a worker may take several publications at once: one by one, nobody could help this broker."""
SLOW_CONTROLLERS = (("fixed", 5), ("aimd", 1), ("eager", 1))
SHORT_CONTROLLERS = (("fixed", 15), ("aimd", 1), ("eager", 1))
"""With N at the start: for `fixed`, about the best at this load."""


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
    """Everything."""

    loads: list[LoadRow]
    steps: dict[str, list[StepResponse]]
    slow_subscriber: list[Congested]
    short_of_capacity: list[Congested]


def tasks() -> int:
    """How often `report` is called."""
    return sum(len(sizes) + 2 for sizes in SIZES.values()) + 2 + 2 * len(SLOW_CONTROLLERS) + len(SHORT_CONTROLLERS)


def reproduce(*, seeds: range, report: Callable[[str], None] = lambda done: None) -> PublisherReproduction:
    """Run all of it; `report` is told what has just been done."""

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
