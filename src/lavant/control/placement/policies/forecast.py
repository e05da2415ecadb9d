"""The `forecast` policy: acts before a rule is violated, and moves less.

The rules of e-StreamHub detect an overload after it has lasted a window, and its first fit fills hosts up to the next
violation. This policy differs in four points:

* **Forecast.** The total load is projected along its trend. If the average would exceed `average.high` within
  `lead_ms`, hosts are added now, as many as bring the expected average to `grow_target`.
* **Balanced enough.** Hosts are filled and offloaded by the moves and swaps that balance most for their cost (see
  `rebalance`), until all are between `fill_low` and `fill_high`; also for a single host as soon as it will exceed
  `host.high`.
* **Reluctant to scale in.** Every release that is undone costs its moves twice. So hosts are released only if the load
  is certainly falling or was low for `look_back_ms`, and not within `rest_ms` of an addition. Few large steps move
  fewer slices than many small ones: one starts at `average.low` (or when a single host has too little) and leads up to
  `shrink_target`. The hosts that are cheapest to empty go; their slices go to the fullest hosts that stay below
  `shrink_host_max`, so that the hosts that go next have few slices too.
* **Saturation is not a measurement.** A host at 100 % hides how much more it was offered; its load counts
  `saturated_factor` times.

It does not wait for the rules' window: the trend smooths instead. The grace period between plans holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from lavant.control.placement.bins import Bins, by_falling_cpu
from lavant.control.placement.plans import DesiredPlacement, hold, make_plan
from lavant.control.placement.policies.trend import SAMPLES_MIN, Trend, fit_trend
from lavant.control.placement.rebalance import move_cost, rebalance
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView
from lavant.core.ids import HostId

SATURATED = 0.97
"""A host above this counts as saturated: probes never show quite 100 %."""

LATEST = 3
"""Samples averaged for the present load."""


class ForecastPolicy:
    """Projects the load, balances hosts, and weighs each move."""

    name = "forecast"

    def decide(self, view: LoadView) -> PlacementPlan | None:
        if len(view.history) < SAMPLES_MIN:
            return None
        forecast = LoadForecast.of(view)
        config = view.config.forecast
        average = forecast.near / len(view.hosts)
        if average > config.average.high:
            seconds = config.lead_ms / 1000
            reason = f"average CPU will be {average:.1%} in {seconds:g} s, above {config.average.high:.0%}"
            return _grow(view, forecast, reason=reason)
        plan = _scale_in(view, forecast)
        return _rebalance(view, forecast) if plan is None else plan


def _grow(view: LoadView, forecast: LoadForecast, *, reason: str) -> PlacementPlan:
    config = view.config.forecast
    wanted = max(len(view.hosts) + 1, math.ceil(forecast.near / config.grow_target))
    added = [view.new_host(n) for n in range(min(wanted - len(view.hosts), view.hosts_addable))]
    if len(added) < wanted - len(view.hosts):
        reason += f"; {wanted} hosts would be needed, {view.config.hosts_max} are the limit"
    bins = Bins(view, cpu_factor=forecast.factor)
    for host in added:
        bins.open(host)
    rebalance(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    figures = forecast.figures(wanted)
    plan = make_plan(view, DesiredPlacement(bins.host_of, added=added), reason=reason, figures=figures)
    if plan.changes:
        return plan
    return hold(view, reason=f"{reason}; no move of a slice would lower it", figures=figures)


def _rebalance(view: LoadView, forecast: LoadForecast) -> PlacementPlan | None:
    """Rebalance if a single host will have too much, or has too little while there is enough for all."""
    config = view.config.forecast
    highest, lowest = max(view.host_cpu.values()) * forecast.factor, min(view.host_cpu.values())
    too_low = lowest < config.host.low < view.average_cpu and view.hosts_releasable > 0
    if highest <= config.host.high and not too_low:
        return None
    seconds = config.lead_ms / 1000
    reason = f"single hosts will have {lowest:.1%} to {highest:.1%} in {seconds:g} s, outside {config.host}"
    bins = Bins(view, cpu_factor=forecast.factor)
    rebalance(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    plan = make_plan(view, DesiredPlacement(bins.host_of), reason=reason, figures=forecast.figures(len(view.hosts)))
    if plan.changes:
        return plan
    # The slices are too coarse for these hosts: a violated rule is worth one more.
    return _grow(view, forecast, reason=reason) if highest > view.config.rules.host.high else None


def _scale_in(view: LoadView, forecast: LoadForecast) -> PlacementPlan | None:
    """Release as many hosts as possible, or None."""
    config = view.config.forecast
    reason = _reason(view, forecast)
    if reason is None or _has_just_grown(view) or _is_plunging(view):
        return None
    # Moves run half way to `lead_ms`; a falling load need not fit before.
    midway = forecast.trend.at(config.lead_ms // 2)
    if forecast.falling_to is not None:
        midway = min(midway, forecast.latest)
    needed = max(forecast.staying / config.shrink_target, midway / config.average.high)
    wanted = max(view.config.hosts_min, math.ceil(needed))
    cheapest = sorted(view.hosts, key=lambda host: (_cost_of_emptying(view, host), view.host_cpu[host], host))
    for count in range(len(view.hosts) - wanted, 0, -1):
        bins = _emptied(view, cheapest[:count], total_cpu=midway)
        if bins is not None:
            desired = DesiredPlacement(bins.host_of, released=cheapest[:count])
            return make_plan(view, desired, reason=reason, figures=forecast.figures(wanted))
    return None


def _reason(view: LoadView, forecast: LoadForecast) -> str | None:
    config = view.config.forecast
    average = forecast.staying / len(view.hosts)
    if average < config.average.low:
        return f"average CPU will be at most {average:.1%} for a while, below {config.average.low:.0%}"
    host = min(view.hosts, key=lambda host: (view.host_cpu[host], host))
    if view.host_cpu[host] < config.host.low:
        return f"CPU of {host} is {view.host_cpu[host]:.1%}, below {config.host.low:.0%}"
    return None


def _has_just_grown(view: LoadView) -> bool:
    """Within `rest_ms` of an addition, unless the average is below even what a single host may have."""
    if view.grown_ms is None or view.average_cpu < view.config.rules.host.low:
        return False
    return view.now_ms - view.grown_ms < view.config.forecast.rest_ms


def _is_plunging(view: LoadView) -> bool:
    """Whether the load fell by a fifth within two probes: one step after the plunge moves less than two in it."""
    return len(view.history) >= 3 and view.history[-1].cpu < 0.8 * view.history[-3].cpu


def _cost_of_emptying(view: LoadView, host: HostId) -> float:
    return math.fsum(move_cost(view.config.forecast, load) for load in view.on_host[host])


def _emptied(view: LoadView, leaving: Sequence[HostId], *, total_cpu: float) -> Bins | None:
    """The slices of these hosts on others, largest first; None if they do not fit."""
    bins = Bins(view, cpu_factor=total_cpu / view.total_cpu if view.total_cpu > 0 else 1.0)
    staying = [host for host in view.hosts if host not in leaving]
    for load in by_falling_cpu(load for host in leaving for load in view.on_host[host]):
        host = bins.fullest(load, staying, view.config.forecast.shrink_host_max)
        if host is None:
            return None
        bins.take(load)
        bins.put(load, host)
    return bins


class LoadForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Loads in hosts. `near` is the highest until `lead_ms`, `latest` the mean of the last samples; `staying` is the
    load for which hosts must stay, `falling_to` the same if the load is certainly falling. `factor` scales the means of
    the window to `near`, as if every slice grew alike.
    """

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
        # After a steep fall the trend line is still above the load, so the latest samples count too.
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
        return {"total_cpu": self.trend.at(0), "total_cpu_soon": self.near, "hosts_wanted": float(hosts_wanted)}


def _trend(view: LoadView) -> Trend:
    config = view.config.forecast
    trend = fit_trend(view.history, view.now_ms, half_life_ms=config.half_life_ms, errors=config.trend_errors)
    saturated = math.fsum(cpu for cpu in view.host_cpu.values() if cpu >= SATURATED)
    hidden = saturated * (config.saturated_factor - 1)
    return Trend(level=trend.level + hidden, slope_per_s=trend.slope_per_s)


def _highest(view: LoadView, trend: Trend) -> float:
    """The highest recent or expected load: fluctuations recur."""
    start_ms = view.now_ms - view.config.forecast.look_back_ms
    soon = trend.highest_until(view.config.forecast.lead_ms)
    return max([soon, *(sample.cpu for sample in view.history if sample.time_ms >= start_ms)])
