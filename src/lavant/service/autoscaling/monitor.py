"""The resource monitor: arrivals, service times and responses of jobs, from what the broker sees.

    SubmitJob ────────────────► arrival of a job type
    LeaseTasks ─► Complete, Fail ─► service at a topic: from the lease to the report
    … the report that ends a job ─► response of a job type

The window is as long as nothing changes, up to a most. When the arrivals of late differ from those before by more than
chance allows, what was before is forgotten: an average over a burst and the calm before it is true of neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any

import msgspec

from lavant.broker.machine.effects import Observer
from lavant.broker.protocol.jobs import CompleteTask, FailTask, LeaseTasks, SubmitJob
from lavant.core.estimation import WindowEstimate
from lavant.service.autoscaling.sliding_window import PANES_MAX, Pane, SlidingWindow, figures

UNDER_WAY_MAX = 1_000_000
"""Jobs and attempts whose begin is remembered; beyond, the oldest are forgotten, and not measured."""
LATE_FACTORS = (1, 4, 16)
"""How long "of late" is, in `recent_s`."""
EXPECTED_MIN = 2.0
"""Of a Poisson count that is smaller than this the normal approximation thinks too little."""


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    window_s: float = 120.0
    """At most; also of service times."""
    recent_s: float = 5.0
    """What is compared with what was before."""
    standard_errors: float = 4.0
    """By how many of them the two must differ to count as a change."""

    @property
    def pane_us(self) -> int:
        """Fine enough for the comparison, and not more of them than there may be."""
        return max(1000, round(max(self.recent_s / 5, self.window_s / (PANES_MAX - 2)) * 1e6))


class SeenTask(msgspec.Struct, frozen=True, kw_only=True):
    """One look."""

    window_s: float
    """Over which arrivals were counted."""
    change: str
    """What has changed since the look before, if something has."""
    jobs: dict[str, WindowEstimate]
    topics: dict[str, WindowEstimate]
    response_s: float | None
    """The mean of the jobs that completed of late; None if none did."""


class Monitor:
    """Told of commands by the server; looked at by the manager. Both in the event loop."""

    def __init__(
        self,
        job_types: Iterable[str],
        topics: Iterable[str],
        config: MonitorConfig,
        clock_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._config = config
        self._clock_ns = clock_ns
        self._jobs = {name: SlidingWindow(pane_us=config.pane_us) for name in job_types}
        self._topics = {name: SlidingWindow(pane_us=config.pane_us) for name in topics}
        self._all = SlidingWindow(pane_us=config.pane_us)
        self._series = {"arrivals of all job types": self._all}
        self._series |= {f"arrivals of job type {name!r}": panes for name, panes in self._jobs.items()}
        self._submitted: dict[int, tuple[int, str]] = {}
        self._leased: dict[tuple[int, str, int], tuple[int, str]] = {}
        self._since_us = self._now_us()
        """From when on arrivals are counted."""
        self.observers: dict[type, Observer] = {
            SubmitJob: self._submit,
            LeaseTasks: self._lease,
            CompleteTask: self._report,
            FailTask: self._report,
        }
        """For the server: whom to tell of which commands."""

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, command: SubmitJob, answer: Any) -> None:
        panes = self._jobs.get(command.job_type)
        if panes is not None and answer.is_new:
            now_us = self._now_us()
            panes.arrived(now_us)
            self._all.arrived(now_us)
            _remember(self._submitted, answer.job, (now_us, command.job_type))

    def _lease(self, command: LeaseTasks, answer: Any) -> None:
        if command.topic in self._topics:
            now_us = self._now_us()
            for task in answer.tasks:
                _remember(self._leased, (task.job, task.task, task.attempt), (now_us, command.topic))

    def _report(self, command: CompleteTask | FailTask, answer: Any) -> None:
        if not answer.is_new:
            return
        is_ok, now_us = type(command) is CompleteTask, self._now_us()
        since_us, topic = self._leased.pop((command.job, command.task, command.attempt), (0, ""))
        if topic:
            self._topics[topic].served(now_us, now_us - since_us, is_ok=is_ok)
        if answer.job_state != "running":
            since_us, job_type = self._submitted.pop(command.job, (0, ""))
            if job_type and answer.job_state == "completed":
                self._jobs[job_type].responded(now_us, now_us - since_us)

    # ── a look ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> SeenTask:
        config, now_us = self._config, self._now_us()
        change = self._change(now_us)
        self._since_us = max(self._since_us, self._aligned(now_us - _us(config.window_s)))
        window_us = max(now_us - self._since_us, _us(config.recent_s))  # a rate over less is none
        counted = {name: panes.total(from_us=self._since_us) for name, panes in self._jobs.items()}
        services_from_us = now_us - _us(config.window_s)
        return SeenTask(
            window_s=window_us / 1e6,
            change=change,
            jobs={
                name: msgspec.structs.replace(
                    figures(total, window_ms=window_us // 1000, job_type=name),
                    arrival_rate_per_s=total.arrivals * 1e6 / window_us,
                )
                for name, total in counted.items()
            },
            topics={
                name: figures(panes.total(from_us=services_from_us), window_ms=1000, topic=name)
                for name, panes in self._topics.items()
            },
            response_s=self._response_s(now_us),
        )

    def _change(self, now_us: int) -> str:
        """Whose arrivals of late are not those of before, in words; from then on they are counted anew.

        A great change shows within `recent_s`, a small one only in a longer time. All types together are looked at
        first: their count is the largest, so it tells soonest.
        """
        for factor in LATE_FACTORS:
            recent_from_us = self._aligned(now_us - _us(factor * self._config.recent_s))
            if recent_from_us - self._since_us < now_us - recent_from_us:
                return ""
            for what, panes in self._series.items():
                rates = self._differ(panes, recent_from_us, now_us)
                if rates:
                    self._since_us = recent_from_us
                    return f"{what} went from {rates}"
        return ""

    def _differ(self, panes: SlidingWindow, recent_from_us: int, now_us: int) -> str:
        """Both rates, if they differ by more than chance allows; the difference of two Poisson counts has the sum of
        their variances."""
        before_us, recent_us = recent_from_us - self._since_us, now_us - recent_from_us
        recent = panes.total(from_us=recent_from_us).arrivals
        before = panes.total(from_us=self._since_us).arrivals - recent
        expected = before * recent_us / before_us
        error = math.sqrt(max(expected, EXPECTED_MIN) * (1.0 + recent_us / before_us))
        if abs(recent - expected) <= self._config.standard_errors * error:
            return ""
        return f"{before * 1e6 / before_us:.3g}/s to {recent * 1e6 / recent_us:.3g}/s"

    def _response_s(self, now_us: int) -> float | None:
        total = Pane()
        for panes in self._jobs.values():
            total.add(panes.total(from_us=self._aligned(now_us - _us(self._config.recent_s))))
        return total.responses_us / total.responses / 1e6 if total.responses else None

    def _now_us(self) -> int:
        return self._clock_ns() // 1000

    def _aligned(self, time_us: int) -> int:
        """To the begin of a pane."""
        return time_us - time_us % self._config.pane_us


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    if len(known) > UNDER_WAY_MAX:
        del known[next(iter(known))]
