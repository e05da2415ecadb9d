"""The `threshold` policy: e-StreamHub's own, Section V.

    global rule violated?   average above its maximum  ->  scale out: offload all hosts above the target, to new hosts
                            average below its minimum  ->  scale in: release the least loaded hosts
    else local rule?        hosts above the maximum    ->  offload them, to the others or else to new hosts
                            a host below the minimum   ->  empty it onto the others and release it

A rule is violated if it was during the whole window. Local rules apply only if no global rule is violated. The paper
leaves open what a re-allocation does for an underloaded host; emptying it is what its Section VI-E describes.

Offloading selects slices, then places them. Against a violated global maximum, every host above the target gives slices
away and others receive up to the target; against a violated local maximum, only the overloaded hosts give, and others
receive up to the local maximum. Deviation: the largest slice of a host stays if it alone exceeds the target. Moving it
would move the overload; instead the others leave.

For scale-in the paper takes "the minimal number of hosts required for an average load equal to or higher than" the
target, which could be above the global maximum and start a scale out at once. Read here: the number whose average is
nearest to the target and stays below the global maximum. The least loaded hosts go first; their slices go to the others
by first fit up to the local maximum; if they do not fit, fewer hosts go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lavant.control.placement.bins import Bins
from lavant.control.placement.first_fit import pack, pack_all
from lavant.control.placement.plans import DesiredPlacement, hold, make_plan
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import UNKNOWN, LoadView, SliceLoad
from lavant.core.ids import HostId

UNITS = 1000
"""Resolution of one host's CPU in the subset sum."""


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
    sources = [host for host in _by_falling_cpu(view) if view.host_cpu[host] > rules.target]
    reason = _above(view, "average CPU", view.average_range.lowest, rules.average.high)
    return offload(view, sources, view.hosts, cpu_max=rules.target, reason=reason)


def _local(view: LoadView) -> PlacementPlan | None:
    band = view.config.rules.host
    ranges = {host: view.host_ranges.get(host, UNKNOWN) for host in view.hosts}
    overloaded = [host for host in _by_falling_cpu(view) if ranges[host].lowest > band.high]
    if overloaded:
        reason = _above(view, f"CPU of {overloaded[0]}", ranges[overloaded[0]].lowest, band.high)
        targets = [host for host in view.hosts if host not in overloaded]
        return offload(view, overloaded, targets, cpu_max=band.high, reason=reason)
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


def scale_in(view: LoadView, *, reason: str) -> PlacementPlan:
    """Release as many hosts as the load allows."""
    wished = len(view.hosts) - hosts_wanted(view)
    least_loaded = sorted(view.hosts, key=lambda host: (view.host_cpu[host], host))
    for count in range(wished, 0, -1):
        plan = release(view, least_loaded[:count], reason=reason)
        if plan is not None:
            return plan
    figures = {"hosts_wanted": float(len(view.hosts) - wished)}
    if wished == 0:
        reason += "; with fewer hosts the average would not be nearer to the target"
    else:
        reason += "; the slices of no host find room on the others"
    return hold(view, reason=reason, figures=figures)


def hosts_wanted(view: LoadView) -> int:
    """The number of hosts, at most as now, whose average is nearest to the target and below the global maximum."""
    rules, now = view.config.rules, len(view.hosts)
    if view.total_cpu == 0:  # all numbers are equally near
        return min(now, view.config.hosts_min)
    possible = [n for n in range(min(now, view.config.hosts_min), now) if view.total_cpu / n < rules.average.high]
    return min([*possible, now], key=lambda n: (abs(view.total_cpu / n - rules.target), -n))


def release(view: LoadView, leaving: Sequence[HostId], *, reason: str) -> PlacementPlan | None:
    """Move all slices of these hosts to the others, or nothing."""
    bins = Bins(view)
    staying = [host for host in view.hosts if host not in leaving]
    moving = [load for host in leaving for load in view.on_host[host]]
    if not pack_all(bins, moving, cpu_max=view.config.rules.host.high, hosts=staying):
        return None
    average = view.total_cpu / len(staying)
    figures = {"hosts_wanted": float(len(staying)), "average_cpu_after": average}
    return make_plan(view, DesiredPlacement(bins.host_of, released=leaving), reason=reason, figures=figures)


def offload(
    view: LoadView, sources: Sequence[HostId], targets: Sequence[HostId], *, cpu_max: float, reason: str
) -> PlacementPlan:
    """Bring the sources down to the target; targets receive up to `cpu_max` each, new hosts the rest."""
    figures = {"target_cpu": view.config.rules.target, "receiver_cpu_max": cpu_max}
    moving = [load for host in sources for load in leaving(view, host)]
    if not moving:
        return hold(view, reason=f"{reason}; {_nothing_to_move(view, sources)}", figures=figures)
    packing = pack(view, moving, cpu_max=cpu_max, hosts=targets)
    desired = DesiredPlacement(packing.bins.host_of, added=packing.added)
    return make_plan(view, desired, reason=reason + packing.shortcomings(view), figures=figures)


def leaving(view: LoadView, host: HostId) -> tuple[SliceLoad, ...]:
    """The slices that bring a host down to the target, with the least state."""
    target = view.config.rules.target
    slices = view.on_host[host]
    largest = max(slices, key=lambda load: (load.cpu, load.id), default=None)
    if largest is not None and largest.cpu > target:
        slices = tuple(load for load in slices if load is not largest)
    return select_slices(slices, view.host_cpu[host] - target)


def _nothing_to_move(view: LoadView, sources: Sequence[HostId]) -> str:
    alone = [view.on_host[host][0] for host in sources if len(view.on_host[host]) == 1]
    if not alone:
        return "moving slices would not lower it"
    largest = max(alone, key=lambda load: (load.cpu, load.id))
    return (
        f"slice {largest.id} alone takes {largest.cpu:.0%} of {largest.host}, and a slice cannot be divided: "
        f"give operator {largest.operator} more slices or larger hosts"
    )


def select_slices(slices: Sequence[SliceLoad], cpu_least: float) -> tuple[SliceLoad, ...]:
    """The slices to move, by id, with at least `cpu_least` in total; all that use CPU, if that is less."""
    by_id = sorted((load for load in slices if units(load.cpu) > 0), key=lambda load: load.id)
    need = units(cpu_least)
    if need <= 0:
        return ()
    if sum(units(load.cpu) for load in by_id) < need:
        return tuple(by_id)
    mask = _best_mask(by_id, need)
    return tuple(load for index, load in enumerate(by_id) if mask >> (len(by_id) - 1 - index) & 1)


def _best_mask(by_id: Sequence[SliceLoad], need: int) -> int:
    best: dict[int, _Best] = {0: _Best(0, 0, 0)}
    for index, load in enumerate(by_id):
        bit = 1 << (len(by_id) - 1 - index)
        for reached, found in list(best.items()):
            total = reached + units(load.cpu)
            candidate = found.with_slice(load, bit)
            # A sufficient set needs no further slice.
            if reached < need and (total not in best or candidate < best[total]):
                best[total] = candidate
    enough = (
        (found.state_bytes, total, found.slices, found.minus_mask) for total, found in best.items() if total >= need
    )
    return -min(enough)[3]


class _Best(NamedTuple):
    """The best set with one sum. Of as many slices, a larger mask has the smaller ids, hence the minus."""

    state_bytes: int
    slices: int
    minus_mask: int

    def with_slice(self, load: SliceLoad, bit: int) -> _Best:
        return _Best(self.state_bytes + load.memory_bytes, self.slices + 1, self.minus_mask - bit)


def units(cpu: float) -> int:
    return round(cpu * UNITS)
