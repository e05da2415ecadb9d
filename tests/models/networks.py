"""Networks to check models on: the paper's case study, and random ones."""

from __future__ import annotations

import numpy as np

from lavant.models.network import ModelJobType, ModelTask, Network, Topic
from lavant.simulation.queueing.case_study import case_study

__all__ = ["case_study", "fork_and_join", "random_allocation", "random_network"]


def random_network(
    seed: int,
    *,
    topics: tuple[int, int] = (2, 5),
    jobs: tuple[int, int] = (1, 4),
    scv: tuple[float, float] = (0.2, 1.5),
) -> Network:
    """Routes of up to four visits, some of them repeated, over topics that all have visitors."""
    random = np.random.default_rng([seed, 77])
    names = [chr(ord("A") + n) for n in range(random.integers(topics[0], topics[1] + 1))]
    routes = [list(random.choice(names, random.integers(1, 5))) for _ in range(random.integers(jobs[0], jobs[1] + 1))]
    visited = sorted({topic for route in routes for topic in route})
    return Network(
        topics=tuple(
            Topic(name=n, service_rate_per_s=random.uniform(0.5, 2.0), service_scv=random.uniform(*scv))
            for n in visited
        ),
        jobs=tuple(
            ModelJobType.along(
                [str(topic) for topic in route],
                name=str(number),
                arrival_rate_per_s=random.uniform(0.3, 1.5),
                arrival_scv=random.uniform(*scv),
            )
            for number, route in enumerate(routes)
        ),
    )


def random_allocation(network: Network, seed: int, *, utilisation: tuple[float, float] = (0.4, 0.9)) -> list[int]:
    """Consumers that are busy for a share between these bounds; never less than needed."""
    random = np.random.default_rng([seed, 78])
    return [max(int(np.ceil(load / random.uniform(*utilisation))), int(load) + 1, 1) for load in network.offered_load]


def fork_and_join(rate_per_s: float = 1.0) -> Network:
    """One job type: A, then B and C side by side, then D."""
    topics = [("A", 1.4, 0.5), ("B", 0.8, 0.7), ("C", 0.7, 1.0), ("D", 1.5, 0.5)]
    tasks = (
        ModelTask("a", "A"),
        ModelTask("b", "B", ("a",)),
        ModelTask("c", "C", ("a",)),
        ModelTask("d", "D", ("b", "c")),
    )
    return Network(
        topics=tuple(Topic(name=n, service_rate_per_s=mu, service_scv=cs) for n, mu, cs in topics),
        jobs=(ModelJobType(name="fork", arrival_rate_per_s=rate_per_s, arrival_scv=1.0, tasks=tasks),),
    )
