"""Predictions for one allocation: requests, utilisation and response times, by topic and by job type."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from lavant.models.evaluation import AllocationColumns, Model
from lavant.models.layout import Floats
from lavant.models.response_times import ResponseTimes


class TopicPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. `requests` and `response_s` are infinite if the load exceeds its consumers."""

    topic: str
    consumers: int
    rate_per_s: float
    utilisation: float
    """ρ_j; 1 or more is unstable."""
    arrival_scv: float
    requests: float
    response_s: float
    """Of one visit: waiting and service."""


class JobPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One job type. For a route both times are equal; with forks, tasks run in parallel."""

    job: str
    response_s: float
    """From arrival to the end of the last task: for a route the sum over its visits, with forks by `ResponseTimes`."""
    tasks_s: float
    """The total time of its tasks."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The whole network under one allocation."""

    consumers: tuple[int, ...]
    wip: float
    """Tasks waiting or in service; with routes only, this is the number of jobs."""
    response_s: float
    """Mean over all jobs."""
    topics: tuple[TopicPrediction, ...]
    jobs: tuple[JobPrediction, ...]

    @property
    def stable(self) -> bool:
        return math.isfinite(self.wip)


def predict(model: Model, consumers: Sequence[int]) -> Prediction:
    """The prediction for one allocation.

    >>> from lavant.models.network import ModelJobType, Network, Topic
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=2.0)
    >>> network = Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))
    >>> round(predict(Model(network), [3]).response_s, 4)
    1.4444
    """
    network = model.network
    columns = model.evaluate([list(consumers)])
    rates, requests = columns.topic_rates_per_s[0], columns.requests[0]
    visit_s = np.divide(requests, rates, out=np.zeros_like(requests), where=rates > 0)
    topics = tuple(
        TopicPrediction(
            topic=topic.name,
            consumers=int(m),
            rate_per_s=float(rate),
            utilisation=float(rate / (topic.service_rate_per_s * m)),
            arrival_scv=float(scv),
            requests=float(found),
            response_s=float(time_s),
        )
        for topic, m, rate, scv, found, time_s in zip(
            network.topics, consumers, rates, columns.topic_scv[0], requests, visit_s, strict=True
        )
    )
    tasks_s, responses = _tasks_s(model, columns)[0].tolist(), responses_s(model, columns)[0].tolist()
    weighted = math.fsum(job.arrival_rate_per_s * s for job, s in zip(network.jobs, responses, strict=True))
    return Prediction(
        consumers=tuple(map(int, consumers)),
        wip=float(columns.wip[0]),
        response_s=weighted / network.arrival_rate_per_s,
        topics=topics,
        jobs=tuple(
            JobPrediction(job=name, response_s=response, tasks_s=whole)
            for name, response, whole in zip(network.job_names, responses, tasks_s, strict=True)
        ),
    )


def responses_s(model: Model, columns: AllocationColumns) -> Floats:
    """The response of each job type, a column each, for every row; with forks by `ResponseTimes`, row by row."""
    found = _tasks_s(model, columns)
    forks = [(number, job.name) for number, job in enumerate(model.network.jobs) if not job.is_route]
    if forks:
        for row, consumers in enumerate(columns.consumers.tolist()):
            times = ResponseTimes(model, consumers)
            for number, name in forks:
                found[row, number] = times.mean_s(name)
    return found


def _tasks_s(model: Model, columns: AllocationColumns) -> Floats:
    """The total time of each job type's tasks. A matrix product would turn infinity times no visit into nan."""
    rates = columns.topic_rates_per_s
    visit_s = np.divide(columns.requests, rates, out=np.zeros(rates.shape), where=rates > 0)
    found = np.zeros((len(visit_s), len(model.network.jobs)))
    for job, topic in zip(model.layout.task_job.tolist(), model.layout.task_topic.tolist(), strict=True):
        found[:, job] += visit_s[:, topic]
    return found
