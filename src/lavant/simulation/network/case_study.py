"""The case study of the allocation paper (Figure 3 and Section VI-A): four topics, three job types, rates per minute.

The figure's routes are garbled in print. These are the only ones with its letters that give both of its printed
results: 1: A → B → D, 2: A → D → D, 3: C → D.
"""

from __future__ import annotations

from collections.abc import Sequence

from lavant.models.network import JobType, Network, Topic

MINUTE_S = 60.0
BUSY_PER_MINUTE = (3.0, 3.5, 3.0)
QUIET_PER_MINUTE = (0.5, 1.0, 0.5)
_TOPICS = (("A", 4.2, 0.33), ("B", 3.7, 0.5), ("C", 6.7, 0.4), ("D", 5.1, 0.5))
_JOBS = (("1", "ABD", 0.33), ("2", "ADD", 0.5), ("3", "CD", 0.25))


def case_study(rates_per_minute: Sequence[float] = BUSY_PER_MINUTE) -> Network:
    """The network under a load.

    >>> [round(load, 2) for load in case_study().offered_load]
    [1.55, 0.81, 0.45, 2.55]
    """
    return Network(
        topics=tuple(Topic(name=n, service_rate_per_s=mu / MINUTE_S, service_scv=scv) for n, mu, scv in _TOPICS),
        jobs=tuple(
            JobType.along(list(route), name=name, arrival_rate_per_s=rate / MINUTE_S, arrival_scv=scv)
            for (name, route, scv), rate in zip(_JOBS, rates_per_minute, strict=True)
        ),
    )
