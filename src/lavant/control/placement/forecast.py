"""The `forecast` policy: acts before a rule is violated, and moves less.

The rules of e-StreamHub see an overload when it has lasted a window, and its first fit fills hosts up to the limit of the
next violation. This policy differs in four points:

* **Ahead.** The total load is projected along its trend. If the average would leave `average` of the configuration
  within `lead_ms` (a grace period, the start of a host and the moves), hosts are added now, enough for the load expected at
  `far_lead_ms`: fewer, larger steps, each of which moves a smaller part of the slices than many small ones together.
* **Even.** New hosts are filled, and hosts relieved, by the moves and swaps that even out most for their cost (module
  `evening`), so all hosts keep the same distance to both limits.
* **Reluctant to shrink.** Hosts go only if neither the present load nor any expected until `far_lead_ms` needs them, and not
  within `rest_ms` of the last addition. The hosts that go are those whose slices are cheapest to move.
* **Saturation is not a measurement.** A host at 100 % hides how much more it was offered; its load counts
  `saturated_factor`-fold.

The rules' window is not waited for: the trend smooths instead. The grace period between plans holds.
"""

from __future__ import annotations

import math

from lavant.control.placement.bins import Bins, by_falling_cpu
from lavant.control.placement.evening import even_out, move_cost
from lavant.control.placement.plans import Wish, hold, make_plan
from lavant.control.placement.trend import SAMPLES_MIN, Trend, fit_trend
from lavant.control.placement.values import HostId, Plan
from lavant.control.placement.view import LoadView

SATURATED = 0.97


class ForecastPolicy:
    """Projects, evens out, and weighs each move."""

    name = "forecast"

    def decide(self, view: LoadView) -> Plan | None:
        if len(view.history) < SAMPLES_MIN:
            return None
        config, hosts = view.config.forecast, len(view.hosts)
        trend = expected(view)
        if trend.highest_until(config.lead_ms) / hosts > config.average.high:
            return _grow(view, trend)
        idle = (
            min(view.host_cpu.values()) < config.host.low or _needed_to_shrink(view, trend) / hosts < config.average.low
        )
        if idle and not _has_just_grown(view):
            plan = _shrink(view, trend)
            if plan is not None:
                return plan
        return _settle(view, trend)


def expected(view: LoadView) -> Trend:
    """The trend of the total load, with what saturated hosts hide."""
    trend = fit_trend(
        view.history,
        view.now_ms,
        half_life_ms=view.config.forecast.half_life_ms,
        errors=view.config.forecast.trend_errors,
    )
    saturated = math.fsum(cpu for cpu in view.host_cpu.values() if cpu >= SATURATED)
    hidden = saturated * (view.config.forecast.saturated_factor - 1)
    return Trend(level=trend.level + hidden, slope_per_s=trend.slope_per_s)


def _grow(view: LoadView, trend: Trend) -> Plan:
    config = view.config.forecast
    near, far = trend.highest_until(config.lead_ms), trend.highest_until(config.far_lead_ms)
    # A trend that lasts is worth a large step, but no more than doubling: the longer the lead, the less sure.
    needed = min(far, config.growth_max * near) / config.grow_target
    wanted = max(len(view.hosts) + 1, math.ceil(needed))
    added = [view.new_host(n) for n in range(min(wanted - len(view.hosts), view.hosts_addable))]
    bins = Bins(view, cpu_factor=_factor(view, near))
    for host in added:
        bins.open(host)
    even_out(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    reason = (
        f"average CPU will be {near / len(view.hosts):.1%} in {config.lead_ms / 1000:g} s, "
        f"above {config.average.high:.0%}"
    )
    if len(added) < wanted - len(view.hosts):
        reason += f"; {wanted} hosts would be needed, {view.config.hosts_max} are the limit"
    plan = make_plan(view, Wish(bins.host_of, added=added), reason=reason, figures=_figures(view, trend, wanted))
    if not plan.changes:
        return hold(view, reason=f"{reason}; no move of a slice would lower it", figures=_figures(view, trend, wanted))
    return plan


def _shrink(view: LoadView, trend: Trend) -> Plan | None:
    config = view.config.forecast
    needed = max(_needed_to_shrink(view, trend) / config.shrink_target, trend.at(0) / config.average.high)
    wanted = max(view.config.hosts_min, math.ceil(needed))
    for count in range(len(view.hosts) - wanted, 0, -1):
        leaving = sorted(view.hosts, key=lambda host: (_cost_of_emptying(view, host), view.host_cpu[host], host))[
            :count
        ]
        bins = _emptied(view, leaving)
        if bins is not None:
            reason = (
                f"average CPU is and stays below {config.average.low:.0%} for {config.far_lead_ms / 1000:g} s, "
                f"{trend.at(0) / len(view.hosts):.1%} now"
            )
            wish = Wish(bins.host_of, released=leaving)
            return make_plan(view, wish, reason=reason, figures=_figures(view, trend, wanted))
    return None


def _needed_to_shrink(view: LoadView, trend: Trend) -> float:
    """The load for which hosts have to stay: the one soon if it falls for sure, or else the highest of late and of
    what is to come, since a fluctuation comes back."""
    config = view.config.forecast
    if trend.slope_per_s < 0:
        return trend.at(config.lead_ms)
    start_ms = view.now_ms - config.look_back_ms
    return max([trend.highest_until(config.far_lead_ms), *(t.cpu for t in view.history if t.time_ms >= start_ms)])


def _emptied(view: LoadView, leaving: list[HostId]) -> Bins | None:
    """The slices of these hosts to the fullest of the others with room, largest first; None if they do not fit.

    Fullest, so that the hosts to go next stay those with few slices."""
    bins = Bins(view)
    staying = [host for host in view.hosts if host not in leaving]
    for load in by_falling_cpu(load for host in leaving for load in view.on_host[host]):
        host = bins.fullest(load, staying, view.config.forecast.shrink_host_max)
        if host is None:
            return None
        bins.take(load)
        bins.put(load, host)
    return bins


def _settle(view: LoadView, trend: Trend) -> Plan | None:
    """Even out if a single host has, or will have, too much or too little."""
    config = view.config.forecast
    factor = _factor(view, trend.highest_until(config.lead_ms))
    highest = max(view.host_cpu.values()) * factor
    lowest = min(view.host_cpu.values())
    too_low = (
        lowest < config.host.low and len(view.hosts) > view.config.hosts_min and view.average_cpu > config.host.low
    )
    if highest <= config.host.high and not too_low:
        return None
    bins = Bins(view, cpu_factor=factor)
    even_out(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    reason = (
        f"single hosts will have {lowest:.1%} to {highest:.1%} in {config.lead_ms / 1000:g} s, outside {config.host}"
    )
    plan = make_plan(view, Wish(bins.host_of), reason=reason, figures=_figures(view, trend, len(view.hosts)))
    return plan if plan.changes else None


def _cost_of_emptying(view: LoadView, host: HostId) -> float:
    return math.fsum(move_cost(view.config.forecast, load) for load in view.on_host[host])


def _has_just_grown(view: LoadView) -> bool:
    """Within `rest_ms` of an addition, unless the average is below even what a single host may have."""
    if view.grown_ms is None or view.average_cpu < view.config.rules.host.low:
        return False
    return view.now_ms - view.grown_ms < view.config.forecast.rest_ms


def _factor(view: LoadView, total_cpu: float) -> float:
    """From the mean of the window to an expected total; every slice is expected to grow alike."""
    return total_cpu / view.total_cpu if view.total_cpu > 0 else 1.0


def _figures(view: LoadView, trend: Trend, wanted: int) -> dict[str, float]:
    config = view.config.forecast
    return {
        "total_cpu": trend.at(0),
        "total_cpu_soon": trend.at(config.lead_ms),
        "total_cpu_later": trend.at(config.far_lead_ms),
        "hosts_wanted": float(wanted),
    }
