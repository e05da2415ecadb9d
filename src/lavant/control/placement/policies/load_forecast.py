"""What the `forecast` policy expects: the total load now and soon, and what saturated hosts hide."""

from __future__ import annotations

import math

import msgspec

from lavant.control.placement.policies.trend import Trend, fit_trend
from lavant.control.placement.view import LoadView

SATURATED = 0.97
"""From here on a host is taken to be at its limit: probes never show quite 100 %."""

LATEST = 3
"""Samples that show what the load is now."""


class LoadForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Loads in hosts. `near` is the highest until `lead_ms`, `latest` the mean of the last samples; `staying` is the
    load for which hosts have to stay, `falling_to` the same if the load falls for sure. `factor` leads from the means
    of the window to `near`, as if every slice grew alike."""

    trend: Trend
    near: float
    staying: float
    falling_to: float | None
    latest: float
    factor: float

    @classmethod
    def of(cls, view: LoadView) -> LoadForecast:
        config = view.config.forecast
        trend = _trend(view)
        near = trend.highest_until(config.lead_ms)
        last = [sample.cpu for sample in view.history[-LATEST:]]
        latest = math.fsum(last) / len(last)
        # After a steep fall the line is still above the load, so the latest counts too.
        falling_to = min(trend.at(config.lead_ms), latest) if trend.slope_per_s < 0 else None
        return cls(
            trend=trend,
            near=near,
            staying=_highest(view, trend) if falling_to is None else falling_to,
            falling_to=falling_to,
            latest=latest,
            factor=near / view.total_cpu if view.total_cpu > 0 else 1.0,
        )

    def figures(self, hosts_wanted: int) -> dict[str, float]:
        """For a decision."""
        return {
            "total_cpu": self.trend.at(0),
            "total_cpu_soon": self.near,
            "hosts_wanted": float(hosts_wanted),
        }


def _trend(view: LoadView) -> Trend:
    config = view.config.forecast
    trend = fit_trend(view.history, view.now_ms, half_life_ms=config.half_life_ms, errors=config.trend_errors)
    saturated = math.fsum(cpu for cpu in view.host_cpu.values() if cpu >= SATURATED)
    hidden = saturated * (config.saturated_factor - 1)
    return Trend(level=trend.level + hidden, slope_per_s=trend.slope_per_s)


def _highest(view: LoadView, trend: Trend) -> float:
    """The highest load of late and of what is to come: fluctuations come back."""
    start_ms = view.now_ms - view.config.forecast.look_back_ms
    soon = trend.highest_until(view.config.forecast.lead_ms)
    return max([soon, *(sample.cpu for sample in view.history if sample.time_ms >= start_ms)])
