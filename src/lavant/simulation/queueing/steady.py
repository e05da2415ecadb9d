"""The steady state by simulation: means with confidence intervals, from batches of one long run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from lavant.core.errors import InvalidValue
from lavant.models.network import Network
from lavant.simulation.queueing.draws import DistributionFamily
from lavant.simulation.queueing.simulation import NetworkSimulation

BATCHES = 30
T_95 = 2.0452
"""Student's t for 29 degrees of freedom, 95 %, both sides."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean, and the half-width of its 95 % confidence interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.half_width:.2f}"


class SteadyState(msgspec.Struct, frozen=True, kw_only=True):
    """The steady state of a network."""

    wip: Estimate
    requests: tuple[Estimate, ...]
    """At each topic."""
    response_s: Estimate
    """Over all jobs."""
    response_of_job_s: tuple[Estimate, ...]
    jobs: int
    """Finished jobs."""


def simulate(
    network: Network,
    consumers: Sequence[int],
    *,
    jobs: int,
    seed: int,
    warm_up: float = 0.1,
    arrivals: DistributionFamily = DistributionFamily.GAMMA,
    services: DistributionFamily = DistributionFamily.GAMMA,
) -> SteadyState:
    """Simulate about so many jobs, of which the first part (`warm_up`) is discarded.

    >>> from lavant.models.network import ModelJobType, Topic
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.5)
    >>> network = Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))
    >>> found = simulate(network, [1], jobs=100_000, seed=1)
    >>> abs(found.response_s.mean - 2.0) < found.response_s.half_width  # M/M/1: 1/(μ − λ)
    True
    """
    unstable = [
        name for name, load, m in zip(network.topic_names, network.offered_load, consumers, strict=True) if load >= m
    ]
    if unstable:
        raise InvalidValue(
            f"topics {', '.join(unstable)} get more than their consumers can serve: there is no steady state"
        )
    run = NetworkSimulation(network, consumers, seed=seed, arrivals=arrivals, services=services)
    length_s = jobs / network.arrival_rate_per_s
    run.advance(warm_up * length_s)
    marks = [run.counters()]
    for batch in range(1, BATCHES + 1):
        run.advance((warm_up + (1.0 - warm_up) * batch / BATCHES) * length_s)
        marks.append(run.counters())
    parts = [later.since(earlier) for earlier, later in pairwise(marks)]
    return SteadyState(
        wip=batch_estimate([part.area.sum() / part.time_s for part in parts]),
        requests=tuple(
            batch_estimate([part.area[j] / part.time_s for part in parts]) for j in range(len(network.topics))
        ),
        response_s=batch_estimate([part.response_sums[:, 0].sum() / part.finished.sum() for part in parts]),
        response_of_job_s=tuple(
            batch_estimate([part.response_sums[i, 0] / max(part.finished[i], 1) for part in parts])
            for i in range(len(network.jobs))
        ),
        jobs=int(marks[-1].finished.sum()),
    )


def batch_estimate(means: ArrayLike) -> Estimate:
    """The mean of `BATCHES` batch means, with its interval."""
    values = np.asarray(means, dtype=np.float64)
    return Estimate(float(values.mean()), float(T_95 * values.std(ddof=1) / np.sqrt(len(values))))
