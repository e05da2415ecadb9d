"""What the `forecast` policy expects: the total load now, soon and later, and what saturated hosts hide."""

from __future__ import annotations

import math

import msgspec

from lavant.control.placement.trend import Trend, fit_trend
from lavant.control.placement.view import LoadView

SATURATED = 0.97
"""From here on a host is taken to be at its limit: probes never show quite 100 %."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """Loads in hosts. `near` and `far` are the highest until `lead_ms` and `far_lead_ms`; `staying` is the load for
    which hosts have to stay; `factor` leads from the means of the window to `near`, as if every slice grew alike."""

    trend: Trend
    near: float
    far: float
    staying: float
    factor: float

    @classmethod
    def of(cls, view: LoadView) -> Outlook:
        config = view.config.forecast
        trend = _trend(view)
        near = trend.highest_until(config.lead_ms)
        return cls(
            trend=trend,
            near=near,
            far=trend.highest_until(config.far_lead_ms),
            staying=_staying(view, trend),
            factor=near / view.total_cpu if view.total_cpu > 0 else 1.0,
        )

    def figures(self, hosts_wanted: int) -> dict[str, float]:
        """For a decision."""
        return {
            "total_cpu": self.trend.at(0),
            "total_cpu_soon": self.near,
            "total_cpu_later": self.far,
            "hosts_wanted": float(hosts_wanted),
        }


def _trend(view: LoadView) -> Trend:
    config = view.config.forecast
    trend = fit_trend(view.history, view.now_ms, half_life_ms=config.half_life_ms, errors=config.trend_errors)
    saturated = math.fsum(cpu for cpu in view.host_cpu.values() if cpu >= SATURATED)
    hidden = saturated * (config.saturated_factor - 1)
    return Trend(level=trend.level + hidden, slope_per_s=trend.slope_per_s)


def _staying(view: LoadView, trend: Trend) -> float:
    """The load soon, if it falls for sure; else the highest of late and of what is to come: fluctuations come back."""
    config = view.config.forecast
    if trend.slope_per_s < 0:
        return trend.at(config.lead_ms)
    start_ms = view.now_ms - config.look_back_ms
    return max([trend.highest_until(config.far_lead_ms), *(t.cpu for t in view.history if t.time_ms >= start_ms)])
