"""The `threshold` policy: e-StreamHub's own, Section V.

    global rule violated?   average above its maximum  ->  scale out: relieve all hosts above the target, to new hosts
                            average below its minimum  ->  scale in: release the least loaded hosts
    else local rule?        hosts above the maximum    ->  relieve them, to the others or else to new hosts
                            a host below the minimum   ->  empty it onto the others and release it

A rule is violated if it was during the whole window. Local rules are looked at only if no global rule is violated.
The paper leaves open what a re-allocation does for an underloaded host; emptying it is what its Section VI-E describes.
"""

from __future__ import annotations

from lavant.control.placement.plans import hold
from lavant.control.placement.policies.host_release import release, scale_in
from lavant.control.placement.policies.offload import relieve
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import UNKNOWN, LoadView
from lavant.core.ids import HostId


class ThresholdPolicy:
    """Acts when a rule was violated during the whole window."""

    name = "threshold"

    def decide(self, view: LoadView) -> PlacementPlan | None:
        rules = view.config.rules
        if view.average_range.lowest > rules.average.high:
            return _scale_out(view)
        if view.average_range.highest < rules.average.low and view.hosts_releasable:
            return scale_in(view, reason=_below(view, "average CPU", view.average_range.highest, rules.average.low))
        return _local(view)


def _scale_out(view: LoadView) -> PlacementPlan:
    rules = view.config.rules
    givers = [host for host in _by_falling_cpu(view) if view.host_cpu[host] > rules.target]
    reason = _above(view, "average CPU", view.average_range.lowest, rules.average.high)
    return relieve(view, givers, view.hosts, cpu_max=rules.target, reason=reason)


def _local(view: LoadView) -> PlacementPlan | None:
    band = view.config.rules.host
    ranges = {host: view.host_ranges.get(host, UNKNOWN) for host in view.hosts}
    overloaded = [host for host in _by_falling_cpu(view) if ranges[host].lowest > band.high]
    if overloaded:
        reason = _above(view, f"CPU of {overloaded[0]}", ranges[overloaded[0]].lowest, band.high)
        receivers = [host for host in view.hosts if host not in overloaded]
        return relieve(view, overloaded, receivers, cpu_max=band.high, reason=reason)
    underloaded = [host for host in reversed(_by_falling_cpu(view)) if ranges[host].highest < band.low]
    return _empty(view, underloaded[0]) if underloaded and view.hosts_releasable else None


def _empty(view: LoadView, host: HostId) -> PlacementPlan:
    rules = view.config.rules
    reason = _below(view, f"CPU of {host}", view.host_ranges[host].highest, rules.host.low)
    average = view.total_cpu / (len(view.hosts) - 1)
    if average >= rules.average.high:
        reason += f"; without it the average would be {average:.1%}, above {rules.average.high:.0%}"
        return hold(view, reason=reason, figures={"average_cpu_after": average})
    plan = release(view, [host], reason=reason)
    if plan is None:
        reason += "; its slices find no room on the others"
        return hold(view, reason=reason, figures={"average_cpu_after": average})
    return plan


def _by_falling_cpu(view: LoadView) -> list[HostId]:
    return sorted(view.hosts, key=lambda host: (-view.host_cpu[host], host))


def _above(view: LoadView, what: str, lowest: float, limit: float) -> str:
    return f"{what} was at least {lowest:.1%} for {view.config.rules.window_ms / 1000:g} s, above {limit:.0%}"


def _below(view: LoadView, what: str, highest: float, limit: float) -> str:
    return f"{what} was at most {highest:.1%} for {view.config.rules.window_ms / 1000:g} s, below {limit:.0%}"
