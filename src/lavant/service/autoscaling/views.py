"""The state of the resource manager, for `/resources`, `lavant resources` and `/metrics`."""

from __future__ import annotations

import math

import msgspec

from lavant.control.allocation import Budget
from lavant.core.decisions import Decision
from lavant.service.autoscaling.manager import ResourceManager
from lavant.service.observability.openmetrics import MetricFamily


class TopicResources(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    wanted: int
    running: int
    leaving: int
    died: int
    """Consumers that ended by themselves and were replaced."""
    fault: str
    requests: float
    """Tasks that wait or are in progress."""
    service_rate_per_s: float | None
    """Of one consumer, as last measured; null before the first measurement."""
    service_scv: float | None
    services: int
    """The number that was measured."""


class JobArrivals(msgspec.Struct, frozen=True, kw_only=True):
    job_type: str
    arrival_rate_per_s: float
    arrival_scv: float | None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    policy: str
    allocator: str
    goal: str
    is_reached: bool
    """According to the model."""
    response_s: float | None
    """Recent mean over all jobs; null if none completed."""
    predicted_s: float | None
    """With the wanted consumers; null where the load is too much for them."""
    window_s: float | None
    """The window over which arrivals are counted."""
    topics: list[TopicResources]
    jobs: list[JobArrivals]
    decided: int
    """The number of decisions."""
    decisions: list[Decision]
    """Recent decisions that changed the allocation, latest first."""


def resources(manager: ResourceManager) -> Resources:
    measured, counts = manager.measured, manager.counts()
    names = manager.system.network.topic_names
    topics = [
        TopicResources(
            topic=name,
            wanted=counts[name].wanted,
            running=counts[name].running,
            leaving=counts[name].leaving,
            died=counts[name].died,
            fault=counts[name].fault,
            requests=requests,
            service_rate_per_s=None if measured is None else measured.topics[name].service_rate_per_s,
            service_scv=None if measured is None else measured.topics[name].service_scv,
            services=0 if measured is None else measured.topics[name].services,
        )
        for name, requests in zip(names, manager.requests(), strict=True)
    ]
    jobs = [] if measured is None else list(measured.jobs.values())
    return Resources(
        file=manager.name,
        policy=manager.policy.name,
        allocator=manager.consumers.name,
        goal=_goal(manager),
        is_reached=manager.is_reached,
        response_s=None if measured is None else measured.response_s,
        predicted_s=_finite(manager.predicted_s),
        window_s=None if measured is None else measured.window_s,
        topics=topics,
        jobs=[
            JobArrivals(job_type=job.job_type, arrival_rate_per_s=job.arrival_rate_per_s, arrival_scv=job.arrival_scv)
            for job in jobs
        ],
        decided=manager.decided,
        decisions=list(reversed(manager.decisions)),
    )


def families(manager: ResourceManager) -> list[MetricFamily]:
    """For `/metrics`."""
    view = resources(manager)
    consumers = [
        ({"topic": topic.topic, "state": state}, getattr(topic, state))
        for topic in view.topics
        for state in ("wanted", "running", "leaving")
    ]
    rates = [({"topic": topic.topic}, topic.service_rate_per_s or 0.0) for topic in view.topics]
    arrivals = [({"job_type": job.job_type}, job.arrival_rate_per_s) for job in view.jobs]
    responses = {"measured": view.response_s, "predicted": view.predicted_s}
    return [
        MetricFamily("lavant_consumers", "gauge", "Consumers of a topic.", consumers),
        MetricFamily(
            "lavant_consumers_died",
            "counter",
            "Consumers that ended by themselves, and were replaced.",
            [({"topic": topic.topic}, topic.died) for topic in view.topics],
        ),
        MetricFamily("lavant_service_rate", "gauge", "Tasks that one consumer of a topic does in a second.", rates),
        MetricFamily("lavant_job_arrival_rate", "gauge", "Jobs of a type that arrive in a second.", arrivals),
        MetricFamily(
            "lavant_job_response_seconds",
            "gauge",
            "Mean response of all jobs of late, and as predicted for the consumers that are wanted.",
            [({"source": source}, value) for source, value in responses.items() if value is not None],
            unit="seconds",
        ),
        MetricFamily(
            "lavant_goal_reached", "gauge", "1 if the goal is predicted to be met.", [({}, int(view.is_reached))]
        ),
        MetricFamily("lavant_decisions", "counter", "Decisions of the resource manager.", [({}, view.decided)]),
    ]


def _goal(manager: ResourceManager) -> str:
    goal = manager.goal
    if isinstance(goal, Budget):
        return f"least response time for {goal.additional:g} on top of {manager.system.cost(manager.system.least):g}"
    return f"least cost for a {goal} of {goal.response_s:g} s"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
