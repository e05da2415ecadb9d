"""Relief of overloaded hosts: the two steps of e-StreamHub's Section V, select and place.

Both rules use it. Against a violated global maximum, every host above the target gives slices away and receives at most
up to the target; against a violated local maximum, only the overloaded hosts give, and others receive up to the local
maximum.

Deviation: the largest slice of a host stays if it alone exceeds the target. Moving it would move the overload; instead
the others leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lavant.control.placement.first_fit import pack
from lavant.control.placement.plans import Wish, hold, make_plan
from lavant.control.placement.values import PlacementPlan
from lavant.control.placement.view import LoadView, SliceLoad
from lavant.core.ids import HostId

UNITS = 1000
"""Steps into which one host's CPU is divided."""


class _Best(NamedTuple):
    """The best set with one sum. A larger mask of as many slices has the smaller ids, hence the minus."""

    state_bytes: int
    slices: int
    minus_mask: int

    def with_slice(self, load: SliceLoad, bit: int) -> _Best:
        return _Best(self.state_bytes + load.memory_bytes, self.slices + 1, self.minus_mask - bit)


def select_slices(slices: Sequence[SliceLoad], cpu_least: float) -> tuple[SliceLoad, ...]:
    """The slices to move, by id, so that at least `cpu_least` goes; all that use CPU, if together they have less."""
    by_id = sorted((load for load in slices if units(load.cpu) > 0), key=lambda load: load.id)
    need = units(cpu_least)
    if need <= 0:
        return ()
    if sum(units(load.cpu) for load in by_id) < need:
        return tuple(by_id)
    mask = _best_mask(by_id, need)
    return tuple(load for index, load in enumerate(by_id) if mask >> (len(by_id) - 1 - index) & 1)


def units(cpu: float) -> int:
    return round(cpu * UNITS)


def _best_mask(by_id: Sequence[SliceLoad], need: int) -> int:
    best: dict[int, _Best] = {0: _Best(0, 0, 0)}
    for index, load in enumerate(by_id):
        bit = 1 << (len(by_id) - 1 - index)
        for reached, found in list(best.items()):
            total = reached + units(load.cpu)
            candidate = found.with_slice(load, bit)
            # What is enough needs no further slice.
            if reached < need and (total not in best or candidate < best[total]):
                best[total] = candidate
    enough = (
        (found.state_bytes, total, found.slices, found.minus_mask) for total, found in best.items() if total >= need
    )
    return -min(enough)[3]


def relieve(
    view: LoadView, givers: Sequence[HostId], receivers: Sequence[HostId], *, cpu_max: float, reason: str
) -> PlacementPlan:
    """Bring the givers down to the target, with receivers of at most `cpu_max` each, or new hosts."""
    figures = {"target_cpu": view.config.rules.target, "receiver_cpu_max": cpu_max}
    moving = [load for host in givers for load in leaving(view, host)]
    if not moving:
        return hold(view, reason=f"{reason}; {_nothing_to_move(view, givers)}", figures=figures)
    packing = pack(view, moving, cpu_max=cpu_max, hosts=receivers)
    wish = Wish(packing.bins.host_of, added=packing.added)
    return make_plan(view, wish, reason=reason + packing.shortcomings(view), figures=figures)


def leaving(view: LoadView, host: HostId) -> tuple[SliceLoad, ...]:
    """The slices that bring a host down to the target, with the least state."""
    target = view.config.rules.target
    slices = view.on_host[host]
    largest = max(slices, key=lambda load: (load.cpu, load.id), default=None)
    if largest is not None and largest.cpu > target:
        slices = tuple(load for load in slices if load is not largest)
    return select_slices(slices, view.host_cpu[host] - target)


def _nothing_to_move(view: LoadView, givers: Sequence[HostId]) -> str:
    alone = [view.on_host[host][0] for host in givers if len(view.on_host[host]) == 1]
    if not alone:
        return "moving slices would not lower it"
    largest = max(alone, key=lambda load: (load.cpu, load.id))
    return (
        f"slice {largest.id} alone takes {largest.cpu:.0%} of {largest.host}, and a slice cannot be divided: "
        f"give operator {largest.operator} more slices or larger hosts"
    )
