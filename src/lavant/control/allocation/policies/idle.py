"""Decides when a budget need not be spent: the least allocation has met the response time for a while."""

from __future__ import annotations

from lavant.control.allocation.plans import LOOP, AllocationPlan
from lavant.control.allocation.policies.interface import ObservedLoad
from lavant.control.allocation.system.system import System
from lavant.core.decisions import Decision
from lavant.models.evaluation import Model
from lavant.models.prediction import predict


class IdleBudget:
    """Tracks since when the least allocation suffices. Without `act_above_s` it is never idle."""

    def __init__(self, *, act_above_s: float | None, window_ms: int) -> None:
        self._act_above_s, self._window_ms = act_above_s, window_ms
        self._since_ms: int | None = None
        self._predicted_s = 0.0

    def is_quiet(self, system: System, observed: ObservedLoad, now_ms: int) -> bool:
        """Whether nothing needs to be spent. Consumers stay until it was idle for the whole window."""
        if self._act_above_s is None:
            return False
        self._predicted_s = predict(Model(system.network, refined=system.refined), system.least).response_s
        if self._predicted_s > self._act_above_s:
            self._since_ms = None
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        return observed.consumers == system.least or now_ms - self._since_ms >= self._window_ms

    def plan(self, system: System, now_ms: int) -> AllocationPlan:
        """The least allocation, and why it is enough."""
        assert self._act_above_s is not None
        reason = (
            f"with the least allocation the response is predicted to be {self._predicted_s:.2f} s, "
            f"no more than {self._act_above_s:g} s"
        )
        figures = {"predicted_s": self._predicted_s, "act_above_s": self._act_above_s}
        action = f"allocate {system.named(system.least)}"
        decision = Decision(loop=LOOP, action=action, reason=reason, figures=figures, time_ms=now_ms)
        return AllocationPlan(consumers=system.least, decision=decision)
