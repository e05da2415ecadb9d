"""Release of hosts: how many, which, and where their slices go (e-StreamHub, Section V).

The paper takes "the minimal number of hosts required for an average load equal to or higher than" the target, which
could be above the global maximum and start a scale out at once. Read here: the number whose average is nearest to the
target and stays below the global maximum. Least loaded hosts go first; their slices go to the others by first fit up
to the local maximum; if they do not fit, fewer hosts go.
"""

from __future__ import annotations

from collections.abc import Sequence

from lavant.control.placement.bins import Bins
from lavant.control.placement.first_fit import pack_all
from lavant.control.placement.plans import Wish, hold, make_plan
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView
from lavant.core.ids import HostId


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
    """The number of hosts, at most as many as now, whose average is nearest to the target, below the global maximum."""
    rules, now = view.config.rules, len(view.hosts)
    if view.total_cpu == 0:  # no number is nearer than another
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
    return make_plan(view, Wish(bins.host_of, released=leaving), reason=reason, figures=figures)
