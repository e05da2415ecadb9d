"""The `forecast` policy: acts before a rule is violated, and moves less.

The rules of e-StreamHub see an overload when it has lasted a window, and its first fit fills hosts up to the next
violation. This policy differs in four points:

* **Ahead.** The total load is projected along its trend. If the average would exceed `average.high` within `lead_ms`,
  hosts are added now, as many as bring the expected average to `grow_target`.
* **Even enough.** Hosts are filled and relieved by the moves and swaps that even out most for their cost (module
  `evening`), until all are between `fill_low` and `fill_high`. This is also done for a single host as soon as it will
  exceed `host.high`.
* **Reluctant to shrink.** See module `retreat`.
* **Saturation is not a measurement.** A host at 100 % hides how much more it was offered; its load counts
  `saturated_factor` times.

The rules' window is not waited for: the trend smooths instead. The grace period between plans holds.
"""

from __future__ import annotations

import math

from lavant.control.placement.bins import Bins
from lavant.control.placement.plans import Wish, hold, make_plan
from lavant.control.placement.policies.load_forecast import LoadForecast
from lavant.control.placement.policies.scale_in_forecast import retreat
from lavant.control.placement.policies.trend import SAMPLES_MIN
from lavant.control.placement.rebalance import even_out
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView


class ForecastPolicy:
    """Projects, evens out, and weighs each move."""

    name = "forecast"

    def decide(self, view: LoadView) -> PlacementPlan | None:
        if len(view.history) < SAMPLES_MIN:
            return None
        outlook = LoadForecast.of(view)
        config = view.config.forecast
        average = outlook.near / len(view.hosts)
        if average > config.average.high:
            seconds = config.lead_ms / 1000
            reason = f"average CPU will be {average:.1%} in {seconds:g} s, above {config.average.high:.0%}"
            return _grow(view, outlook, reason=reason)
        plan = retreat(view, outlook)
        return _settle(view, outlook) if plan is None else plan


def _grow(view: LoadView, outlook: LoadForecast, *, reason: str) -> PlacementPlan:
    config = view.config.forecast
    wanted = max(len(view.hosts) + 1, math.ceil(outlook.near / config.grow_target))
    added = [view.new_host(n) for n in range(min(wanted - len(view.hosts), view.hosts_addable))]
    if len(added) < wanted - len(view.hosts):
        reason += f"; {wanted} hosts would be needed, {view.config.hosts_max} are the limit"
    bins = Bins(view, cpu_factor=outlook.factor)
    for host in added:
        bins.open(host)
    even_out(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    figures = outlook.figures(wanted)
    plan = make_plan(view, Wish(bins.host_of, added=added), reason=reason, figures=figures)
    if plan.changes:
        return plan
    return hold(view, reason=f"{reason}; no move of a slice would lower it", figures=figures)


def _settle(view: LoadView, outlook: LoadForecast) -> PlacementPlan | None:
    """Even out if a single host will have too much, or has too little while there is enough for all."""
    config = view.config.forecast
    highest, lowest = max(view.host_cpu.values()) * outlook.factor, min(view.host_cpu.values())
    too_low = lowest < config.host.low < view.average_cpu and view.hosts_releasable > 0
    if highest <= config.host.high and not too_low:
        return None
    seconds = config.lead_ms / 1000
    reason = f"single hosts will have {lowest:.1%} to {highest:.1%} in {seconds:g} s, outside {config.host}"
    bins = Bins(view, cpu_factor=outlook.factor)
    even_out(bins, bins.hosts, config, low=config.fill_low, high=config.fill_high)
    plan = make_plan(view, Wish(bins.host_of), reason=reason, figures=outlook.figures(len(view.hosts)))
    if plan.changes:
        return plan
    # The slices are too coarse for the hosts there are: a violated rule is worth one more.
    return _grow(view, outlook, reason=reason) if highest > view.config.rules.host.high else None
