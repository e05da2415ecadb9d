"""From telemetry's estimates to a network: the parameters that a system file needs.

Rates and variabilities are those of the windows, weighted by what they were computed from. A job type's visits to a
topic are its arrivals there over its arrivals at the system (topic ""); without the latter, over those at the topic
that it came to first. Telemetry has no ids of jobs, so the *order* of visits is that in which topics saw the job type
first. It matters for variabilities only; check it where it does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from lavant.core.errors import InvalidValue
from lavant.core.estimation import WindowEstimate
from lavant.models.network import JobType, Network, Topic

VISITS_MAX = 100
"""Of one job to one topic; more is telemetry that does not belong together."""
MERGED = "jobs"
"""The name of publications that belong to no job type."""


def fit(
    estimates: Sequence[WindowEstimate], first_seen_us: Mapping[tuple[str, str], int], *, length_s: float
) -> Network:
    """The network that the estimates describe.

    `first_seen_us` has the first arrival of each job type at each topic, `length_s` is from the first arrival to the
    last: windows begin and end with the clock, not with the telemetry.
    """
    if not estimates:
        raise InvalidValue(
            "there is no telemetry to fit a model to; give a directory with rows of arrivals and services"
        )
    if not length_s > 0:
        raise InvalidValue(f"telemetry must span some time for rates to be known, got {length_s} s")
    at: dict[tuple[str, str], list[WindowEstimate]] = defaultdict(list)
    for estimate in estimates:
        at[estimate.job_type, estimate.topic].append(estimate)
    topics = {name: _topic(name, [e for (_, topic), es in at.items() if topic == name for e in es])
              for name in sorted({topic for _, topic in at if topic})}  # fmt: skip
    jobs = [_job(job, at, first_seen_us, length_s) for job in sorted({job for job, _ in at})]
    found = tuple(job for job in jobs if job is not None)
    visited = {task.topic for job in found for task in job.tasks}
    missing = sorted(name for name in visited if topics[name] is None)
    if missing:
        raise InvalidValue(f"no services were observed at {', '.join(missing)}, so their service rates are not known")
    if not found:
        raise InvalidValue("no arrivals at topics were observed, so there are no job types to fit")
    return Network(topics=tuple(t for t in topics.values() if t is not None and t.name in visited), jobs=found)


def _topic(name: str, estimates: list[WindowEstimate]) -> Topic | None:
    known = [(e.services, 1 / e.service_rate_per_s, e.service_scv) for e in estimates if e.service_rate_per_s]
    count = sum(n for n, _, _ in known)
    if not count:
        return None
    mean_s = math.fsum(n * s for n, s, _ in known) / count
    square = math.fsum(n * s * s * (1 + (0.0 if scv is None else scv)) for n, s, scv in known) / count
    return Topic(name=name, service_rate_per_s=1 / mean_s, service_scv=max(0.0, square / mean_s**2 - 1))


def _job(
    name: str,
    at: Mapping[tuple[str, str], list[WindowEstimate]],
    first_seen_us: Mapping[tuple[str, str], int],
    length_s: float,
) -> JobType | None:
    topics = [topic for job, topic in at if job == name and topic and (job, topic) in first_seen_us]
    if not topics:
        return None
    topics.sort(key=lambda topic: (first_seen_us[name, topic], topic))
    whole = at.get((name, ""), [])
    entrance = whole if _arrivals(whole) else at[name, topics[0]]
    route = [topic for topic in topics for _ in range(_visits(name, topic, at[name, topic], _arrivals(entrance)))]
    return JobType.along(
        route,
        name=name if name else MERGED,
        arrival_rate_per_s=_arrivals(entrance) / length_s,
        arrival_scv=_arrival_scv(entrance),
    )


def _visits(name: str, topic: str, estimates: list[WindowEstimate], jobs: int) -> int:
    visits = _arrivals(estimates) / jobs
    if visits > VISITS_MAX:
        raise InvalidValue(
            f"jobs of type {name!r} would come to topic {topic!r} {visits:.0f} times each; is all of it there?"
        )
    return max(1, round(visits))


def _arrivals(estimates: Iterable[WindowEstimate]) -> int:
    return sum(estimate.arrivals for estimate in estimates)


def _arrival_scv(estimates: Iterable[WindowEstimate]) -> float:
    """Weighted by gaps; 1 where there were too few."""
    known = [(e.arrivals - 1, e.arrival_scv) for e in estimates if e.arrival_scv is not None]
    gaps = sum(count for count, _ in known)
    return math.fsum(count * scv for count, scv in known) / gaps if gaps else 1.0
