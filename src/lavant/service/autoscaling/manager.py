"""The resource manager's control loop: measure, decide when due, scale; keeps every decision with its reason."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from lavant.control.allocation import AllocationPlan, Allocator, Caution, ObservedLoad, Schedule, System, allocator_for
from lavant.control.allocation.policies.interface import expected
from lavant.core.decisions import Decision
from lavant.core.estimation import WindowEstimate
from lavant.models.evaluation import Model
from lavant.models.prediction import predict
from lavant.service.autoscaling.allocators.interface import ConsumerAllocator, ConsumerCounts
from lavant.service.autoscaling.config_file import ResourcesFile
from lavant.service.autoscaling.monitor import Measurement, Monitor

DECISIONS_KEPT = 100
SERVICES_MIN, GAPS_MIN = 5, 20
"""Services, and arrivals, needed before their figures are used: a mean converges sooner than a variance."""
SCV_MAX = 25.0
"""A larger value is taken for outliers in a small sample."""

_NO_CAUTION = Caution(drain_s=None)

_logger = logging.getLogger(__name__)


class ResourceManager:
    """`requests` returns the tasks of each topic, waiting or in progress."""

    def __init__(
        self,
        file: ResourcesFile,
        monitor: Monitor,
        consumers: ConsumerAllocator,
        requests: Callable[[], tuple[float, ...]],
    ) -> None:
        self.system: System = file.system
        self.policy: Allocator = allocator_for(file.system, file.allocation())
        self.goal = file.goal
        self.consumers = consumers
        self.name = file.name
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        """Those that changed the allocation, or were the first to say that the goal is out of reach."""
        self.decided = 0
        """The number of all decisions."""
        self.wanted = self.system.least
        self.measured: Measurement | None = None
        self.observed: ObservedLoad | None = None
        self.is_reached = True
        self.predicted_s: float | None = None
        self._monitor = monitor
        self._schedule = Schedule(file.schedule())
        self._look_s = file.loop.look_s
        self.requests = requests
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the consumers with the least allocation, then the loop."""
        await self.consumers.start()
        await self._apply(self.system.least)
        self._task = asyncio.create_task(self._run(), name="resource manager")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.consumers.stop()

    def counts(self) -> dict[str, ConsumerCounts]:
        return self.consumers.counts()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self.step(round(time.time() * 1000))
            except Exception:  # the workers go on as they are; the next round may succeed
                _logger.exception("resource manager: a round failed")

    async def step(self, now_ms: int) -> AllocationPlan | None:
        """One round of the loop; returns the plan, if a decision was due."""
        measured = self.measured = self._monitor.measure()
        why = self._schedule.occasion(now_ms, change=measured.change, response_s=measured.response_s)
        if why is None:
            return None
        observed = self.observed = self._observe(measured)
        plan = self.policy.decide(observed, now_ms)
        self.decided += 1
        self._note(plan, observed, why)
        if plan.consumers != self.wanted:
            await self._apply(plan.consumers)
        return plan

    async def _apply(self, consumers: tuple[int, ...]) -> None:
        self.wanted = consumers
        for topic, count in zip(self.system.network.topic_names, consumers, strict=True):
            await self.consumers.scale(topic, count)

    def _observe(self, measured: Measurement) -> ObservedLoad:
        network = self.system.network
        topics = [
            _measured_topic(measured.topics[topic.name], topic.service_rate_per_s, topic.service_scv)
            for topic in network.topics
        ]
        jobs = [measured.jobs[name] for name in network.job_names]
        return ObservedLoad(
            consumers=self.wanted,
            arrival_rates_per_s=tuple(job.arrival_rate_per_s for job in jobs),
            requests=self.requests(),
            window_s=measured.window_s,
            service_rates_per_s=tuple(rate for rate, _ in topics),
            service_scvs=tuple(scv for _, scv in topics),
            arrival_scvs=tuple(_scv(job.arrival_scv, job.arrivals) for job in jobs),
        )

    def _note(self, plan: AllocationPlan, observed: ObservedLoad, why: str) -> None:
        under_load = expected(self.system, observed, _NO_CAUTION)
        self.predicted_s = predict(Model(under_load.network, refined=under_load.refined), plan.consumers).response_s
        is_news = plan.consumers != self.wanted or plan.reached != self.is_reached
        self.is_reached = plan.reached
        if not is_news:
            return
        reason = f"{why}; {plan.decision.reason}"
        if not plan.reached:
            needed = under_load.least_stable
            reason += f"; the load needs at least {sum(needed)} consumers: {under_load.named(needed)}"
        figures = {**plan.decision.figures, "window_s": round(observed.window_s, 3)}
        for name, rate in zip(self.system.network.job_names, observed.arrival_rates_per_s, strict=True):
            figures[f"{name} per s"] = round(rate, 4)
        decision = replace(plan.decision, reason=reason, figures=figures)
        self.decisions.append(decision)
        _logger.log(logging.INFO if plan.reached else logging.WARNING, "%s", decision)


def _measured_topic(estimate: WindowEstimate, rate_per_s: float, scv: float) -> tuple[float, float]:
    """Tasks completed per second of work: failed attempts keep a consumer busy without completing one."""
    if estimate.services < SERVICES_MIN or estimate.service_rate_per_s is None or estimate.failure_probability == 1:
        return rate_per_s, scv
    failed = 0.0 if estimate.failure_probability is None else estimate.failure_probability
    return estimate.service_rate_per_s * (1.0 - failed), scv if estimate.service_scv is None else min(
        estimate.service_scv, SCV_MAX
    )


def _scv(scv: float | None, count: int) -> float:
    return 1.0 if scv is None or count < GAPS_MIN else min(scv, SCV_MAX)
