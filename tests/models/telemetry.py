"""Telemetry as a service would write it, of the case study with a consumer for everybody."""

from __future__ import annotations

import numpy as np

from lavant.core.telemetry import Observation, ObservationKind
from lavant.simulation.queueing.case_study import case_study


def case_study_telemetry(*, hours: float, seed: int, whole_jobs: bool = True) -> list[Observation]:
    """Arrivals and services at each topic, and with `whole_jobs` arrivals of jobs at the system."""
    random = np.random.default_rng(seed)
    network = case_study()
    topics = {topic.name: topic for topic in network.topics}
    rows = []
    for job in network.jobs:
        now_s = 0.0
        while (now_s := now_s + _time(random, job.arrival_rate_per_s, job.arrival_scv)) < hours * 3600:
            if whole_jobs:
                rows.append(_arrival(now_s, job.name, ""))
            at_s = now_s
            for task in job.tasks:
                topic = topics[task.topic]
                rows.append(_arrival(at_s, job.name, task.topic))
                service_s = _time(random, topic.service_rate_per_s, topic.service_scv)
                at_s += service_s
                rows.append(
                    Observation(
                        time_us=int(at_s * 1e6),
                        kind=ObservationKind.SERVICE,
                        job_type=job.name,
                        topic=task.topic,
                        duration_us=int(service_s * 1e6),
                    )
                )
    return rows


def _time(random: np.random.Generator, rate_per_s: float, scv: float) -> float:
    return float(random.gamma(1 / scv, scv / rate_per_s))


def _arrival(time_s: float, job: str, topic: str) -> Observation:
    return Observation(
        time_us=int(time_s * 1e6), kind=ObservationKind.ARRIVAL, job_type=job, topic=topic, publications=1
    )
