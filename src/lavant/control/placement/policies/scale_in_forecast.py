"""How the `forecast` policy releases hosts: late, many at once, and cheaply.

Every release that is undone costs its moves twice. So hosts go only if the load falls for sure or was low for
`look_back_ms`, and not within `rest_ms` of an addition. Few large steps move fewer slices than many small ones: one
starts at `average.low` (or when a single host has too little) and leads up to `shrink_target`. The hosts that go are
those that are cheapest to empty; their slices go to the fullest hosts that stay below `shrink_host_max`, so that the
hosts that go next have few slices too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lavant.control.placement.bins import Bins, by_falling_cpu
from lavant.control.placement.plans import Wish, make_plan
from lavant.control.placement.policies.load_forecast import LoadForecast
from lavant.control.placement.rebalance import move_cost
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView
from lavant.core.ids import HostId


def retreat(view: LoadView, outlook: LoadForecast) -> PlacementPlan | None:
    """The release of as many hosts as can go, or None."""
    config = view.config.forecast
    reason = _reason(view, outlook)
    if reason is None or _has_just_grown(view) or _is_plunging(view):
        return None
    # Half way to `lead_ms` the moves are under way; a load that falls need not fit before.
    midway = outlook.trend.at(config.lead_ms // 2)
    if outlook.falling_to is not None:
        midway = min(midway, outlook.latest)
    needed = max(outlook.staying / config.shrink_target, midway / config.average.high)
    wanted = max(view.config.hosts_min, math.ceil(needed))
    cheapest = sorted(view.hosts, key=lambda host: (_cost_of_emptying(view, host), view.host_cpu[host], host))
    for count in range(len(view.hosts) - wanted, 0, -1):
        bins = _emptied(view, cheapest[:count], total_cpu=midway)
        if bins is not None:
            wish = Wish(bins.host_of, released=cheapest[:count])
            return make_plan(view, wish, reason=reason, figures=outlook.figures(wanted))
    return None


def _reason(view: LoadView, outlook: LoadForecast) -> str | None:
    config = view.config.forecast
    average = outlook.staying / len(view.hosts)
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
    """Whether the load falls by a fifth within two probes: one step after the plunge moves less than two in it."""
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
