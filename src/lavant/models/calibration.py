"""Fits a network to telemetry estimates: the parameters that a system file needs.

Rates and variabilities are those of the windows, weighted by their sample sizes. A job type's visits to a topic are its
arrivals there over its arrivals at the system (topic ""); without the latter, over those at the topic that it came to
first. A server records no arrivals of tasks: there visits are services over ended jobs, and retries count as visits,
because they keep consumers busy too.

Telemetry has no ids of jobs, so the *order* of visits is that in which topics first saw the job type. It matters for
variabilities only; check it where it does.

Messages that belong to no job are served by their queue and go nowhere from there: each such topic is a job type of its
own. A queue without consumers (a dead-letter queue, say) is left out. So are the server's own stages, to which no
consumers can be added.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from lavant.core.errors import InvalidValue
from lavant.core.estimation import WindowEstimate
from lavant.core.telemetry import is_stage
from lavant.models.network import ModelJobType, Network, Topic

VISITS_MAX = 100
"""Of one job to one topic; more means telemetry of different systems."""
NO_JOB = ""
WHOLE = ""
"""Instead of a topic: a job as a whole."""

_Windows: TypeAlias = Mapping[tuple[str, str], list[WindowEstimate]]
"""By job type and topic."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A network, and the telemetry that is not part of it."""

    network: Network
    left_out: tuple[str, ...]
    """Topics where messages arrived and none was consumed."""


def fit(estimates: Sequence[WindowEstimate], first_seen_us: Mapping[tuple[str, str], int], *, length_s: float) -> Fit:
    """The network that the estimates describe.

    `first_seen_us` is when each job type was first seen at each topic: its first arrival, or the start of its first
    service. `length_s` is the time from the first arrival to the last: windows begin and end with the clock, not with
    the telemetry.
    """
    if not estimates:
        raise InvalidValue(
            "there is no telemetry to fit a model to; give a directory with rows of arrivals and services"
        )
    if not length_s > 0:
        raise InvalidValue(f"telemetry must span some time for rates to be known, got {length_s} s")
    at: dict[tuple[str, str], list[WindowEstimate]] = defaultdict(list)
    for estimate in estimates:
        if not is_stage(estimate.topic):
            at[estimate.job_type, estimate.topic].append(estimate)
    topics = {name: _topic(name, [e for (_, topic), es in at.items() if topic == name for e in es])
              for name in sorted({topic for _, topic in at if topic != WHOLE})}  # fmt: skip
    names = sorted({job for job, _ in at if job != NO_JOB})
    found = [job for name in names if (job := _job(name, at, first_seen_us, length_s)) is not None]
    missing = sorted({task.topic for job in found for task in job.tasks if topics[task.topic] is None})
    if missing:
        raise InvalidValue(f"no services were observed at {', '.join(missing)}, so their service rates are unknown")
    alone = [topic for job, topic in at if job == NO_JOB and topic != WHOLE and _arrivals(at[job, topic])]
    found += [_of_messages(name, at, length_s, taken=names) for name in sorted(alone) if topics[name] is not None]
    if not found:
        raise InvalidValue(
            "no topic or queue was observed at which work both arrived and was served, so there is nothing to "
            "fit; write telemetry while jobs or messages are processed"
        )
    visited = {task.topic for job in found for task in job.tasks}
    return Fit(
        network=Network(
            topics=tuple(t for t in topics.values() if t is not None and t.name in visited), jobs=tuple(found)
        ),
        left_out=tuple(name for name in sorted(alone) if topics[name] is None),
    )


def _topic(name: str, estimates: list[WindowEstimate]) -> Topic | None:
    known = [(e.services, 1 / e.service_rate_per_s, e.service_scv) for e in estimates if e.service_rate_per_s]
    count = sum(n for n, _, _ in known)
    if not count:
        return None
    mean_s = math.fsum(n * s for n, s, _ in known) / count
    square = math.fsum(n * s * s * (1 + (0.0 if scv is None else scv)) for n, s, scv in known) / count
    return Topic(name=name, service_rate_per_s=1 / mean_s, service_scv=max(0.0, square / mean_s**2 - 1))


def _job(name: str, at: _Windows, first_seen_us: Mapping[tuple[str, str], int], length_s: float) -> ModelJobType | None:
    topics = [topic for job, topic in at if job == name and topic != WHOLE and (job, topic) in first_seen_us]
    topics.sort(key=lambda topic: (first_seen_us[name, topic], topic))
    whole = at.get((name, WHOLE), [])
    entrance = whole if _arrivals(whole) or not topics else at[name, topics[0]]
    jobs = _arrivals(entrance)
    if not topics or not jobs:
        return None
    ended = sum(estimate.responses for estimate in whole)
    route = [
        topic
        for topic in topics
        for _ in range(_visits(name, topic, at[name, topic], jobs=jobs, ended=ended if ended else jobs))
    ]
    return ModelJobType.along(route, name=name, arrival_rate_per_s=jobs / length_s, arrival_scv=_arrival_scv(entrance))


def _of_messages(topic: str, at: _Windows, length_s: float, *, taken: Sequence[str]) -> ModelJobType:
    """Messages sent to a queue, as a job type with one task."""
    estimates = at[NO_JOB, topic]
    return ModelJobType.along(
        [topic],
        name=f"messages of {topic}" if topic in taken else topic,
        arrival_rate_per_s=_arrivals(estimates) / length_s,
        arrival_scv=_arrival_scv(estimates),
    )


def _visits(name: str, topic: str, estimates: list[WindowEstimate], *, jobs: int, ended: int) -> int:
    arrivals = _arrivals(estimates)
    visits = arrivals / jobs if arrivals else sum(estimate.services for estimate in estimates) / ended
    if visits > VISITS_MAX:
        raise InvalidValue(
            f"jobs of type {name!r} would come to topic {topic!r} {visits:.0f} times each; is the telemetry complete?"
        )
    return max(1, round(visits))


def _arrivals(estimates: Iterable[WindowEstimate]) -> int:
    return sum(estimate.arrivals for estimate in estimates)


def _arrival_scv(estimates: Iterable[WindowEstimate]) -> float:
    """Weighted by gaps; 1 where there were too few."""
    known = [(e.arrivals - 1, e.arrival_scv) for e in estimates if e.arrival_scv is not None]
    gaps = sum(count for count, _ in known)
    return math.fsum(count * scv for count, scv in known) / gaps if gaps else 1.0
