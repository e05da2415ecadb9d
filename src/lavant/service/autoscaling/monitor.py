"""The resource monitor: measures arrivals, service times and responses of jobs from the broker's commands.

    SubmitJob ────────────────► arrival of a job type
    LeaseTasks ─► Complete, Fail ─► service at a topic: from the lease to the report
    … the report that ends a job ─► response of a job type

The window grows as long as the load stays the same, up to a maximum. When recent arrivals differ from those before by
more than chance allows, older arrivals are dropped: an average over a burst and the calm before it is true of neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Any

import msgspec

from lavant.broker.machine.effects import Observer
from lavant.broker.protocol.jobs import CompleteTask, FailTask, LeaseTasks, SubmitJob
from lavant.core.estimation import SlidingWindow, WindowEstimate, WindowSums
from lavant.core.estimation.sliding_window import PANES_MAX

UNDER_WAY_MAX = 1_000_000
"""Jobs and attempts whose start is remembered; beyond this, the oldest are dropped and not measured."""
RECENT_FACTORS = (1, 4, 16)
"""Recent arrivals are those of the last `recent_s`, times each of these."""


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    window_s: float = 120.0
    """The longest window of arrivals, and the window of service times."""
    recent_s: float = 5.0
    """The span that is compared with the time before it."""
    standard_errors: float = 4.0
    """How many standard errors the two rates must differ by to count as a change."""

    @property
    def pane_us(self) -> int:
        """Fine enough for the comparison, with at most `PANES_MAX` panes."""
        return max(1000, round(max(self.recent_s / 5, self.window_s / (PANES_MAX - 2)) * 1e6))


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The load at one time."""

    window_s: float
    """Over which arrivals were counted."""
    change: str
    """How arrivals changed since the last measurement; empty if they did not."""
    jobs: dict[str, WindowEstimate]
    topics: dict[str, WindowEstimate]
    response_s: float | None
    """The mean of recently completed jobs; None if there were none."""


class Monitor:
    """The server reports commands to it, the manager asks it for measurements; both in the event loop."""

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
        self._series |= {f"arrivals of job type {name!r}": window for name, window in self._jobs.items()}
        self._submitted: dict[int, tuple[int, str]] = {}
        self._leased: dict[tuple[int, str, int], tuple[int, str]] = {}
        self._since_us = self._now_us()
        """The start of the window of arrivals."""
        self.observers: dict[type, Observer] = {
            SubmitJob: self._submit,
            LeaseTasks: self._lease,
            CompleteTask: self._report,
            FailTask: self._report,
        }
        """For the server, by command type."""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, command: SubmitJob, answer: Any) -> None:
        window = self._jobs.get(command.job_type)
        if window is not None and answer.is_new:
            now_us = self._now_us()
            window.add_arrival(now_us)
            self._all.add_arrival(now_us)
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
            self._topics[topic].add_service(now_us, now_us - since_us, is_ok=is_ok)
        if answer.job_state != "running":
            since_us, job_type = self._submitted.pop(command.job, (0, ""))
            if job_type and answer.job_state == "completed":
                self._jobs[job_type].add_response(now_us, now_us - since_us)

    # ── measurements ──────────────────────────────────────────────────────────────────────────────────────────────────

    def measure(self) -> Measurement:
        config, now_us = self._config, self._now_us()
        change = self._change(now_us)
        longest_us = _us(config.window_s)
        self._since_us = max(self._since_us, self._aligned(now_us - longest_us))
        window_us = max(now_us - self._since_us, _us(config.recent_s))  # a rate over less says nothing
        return Measurement(
            window_s=window_us / 1e6,
            change=change,
            jobs={
                name: window.estimate(from_us=self._since_us, window_us=window_us, job_type=name)
                for name, window in self._jobs.items()
            },
            topics={
                name: window.estimate(from_us=now_us - longest_us, window_us=longest_us, topic=name)
                for name, window in self._topics.items()
            },
            response_s=self._response_s(now_us),
        )

    def _change(self, now_us: int) -> str:
        """Describe a change of arrivals, if there is one, and begin the window anew where it happened.

        A great change shows within `recent_s`, a small one only in a longer time. All types together are compared
        first: their count is the largest, so it shows a change soonest.
        """
        for factor in RECENT_FACTORS:
            recent_from_us = self._aligned(now_us - _us(factor * self._config.recent_s))
            if recent_from_us - self._since_us < now_us - recent_from_us:
                return ""
            for name, window in self._series.items():
                rates = window.rate_change(
                    since_us=self._since_us,
                    recent_from_us=recent_from_us,
                    now_us=now_us,
                    standard_errors=self._config.standard_errors,
                )
                if rates is not None:
                    self._since_us = recent_from_us
                    return f"{name} went from {rates[0]:.3g}/s to {rates[1]:.3g}/s"
        return ""

    def _response_s(self, now_us: int) -> float | None:
        total = WindowSums()
        for window in self._jobs.values():
            total.merge(window.sums(from_us=self._aligned(now_us - _us(self._config.recent_s))))
        return total.response_mean_s

    def _now_us(self) -> int:
        return self._clock_ns() // 1000

    def _aligned(self, time_us: int) -> int:
        """Round down to the start of a pane."""
        return time_us - time_us % self._config.pane_us


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    if len(known) > UNDER_WAY_MAX:
        del known[next(iter(known))]
