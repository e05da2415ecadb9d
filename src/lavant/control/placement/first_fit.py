"""First fit by decreasing CPU, with new hosts when the present ones have no room.

e-StreamHub, Section V, second step. A slice that no host of the given capacity can hold goes alone to an empty host,
since it must run somewhere. Where no host may be added, a slice goes to the least loaded host that stays within the
local rule; where that fails too, it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lavant.control.placement.bins import Bins, by_falling_cpu
from lavant.control.placement.view import LoadView, SliceLoad
from lavant.core.ids import HostId


class Packing(NamedTuple):
    """The result, the hosts added, the slices that went to hosts above the target, and those that stay."""

    bins: Bins
    added: list[HostId]
    squeezed: list[SliceLoad]
    stuck: list[SliceLoad]

    def shortcomings(self, view: LoadView) -> str:
        """Their description in a decision's reason; empty if there are none."""
        parts: list[str] = []
        if self.squeezed:
            limit = view.config.hosts_max
            parts.append(f"{_names(self.squeezed)} go to hosts above the target, as {limit} hosts are the limit")
        if self.stuck:
            parts.append(f"no host has CPU, memory and network for {_names(self.stuck)}")
        return "".join(f"; {part}" for part in parts)


def pack(view: LoadView, moving: Sequence[SliceLoad], *, cpu_max: float, hosts: Sequence[HostId]) -> Packing:
    """Put the moving slices on `hosts` or new ones.

    All leave their hosts before the first is placed, as in the paper. If one of them then does not fit, it must go back
    to a host that others may have filled; so everything is redone with one slice leaving at a time.
    """
    result = _packed(view, moving, cpu_max=cpu_max, hosts=hosts, at_once=True)
    if result.squeezed or result.stuck:
        result = _packed(view, moving, cpu_max=cpu_max, hosts=hosts, at_once=False)
    return result


def _packed(
    view: LoadView, moving: Sequence[SliceLoad], *, cpu_max: float, hosts: Sequence[HostId], at_once: bool
) -> Packing:
    result = Packing(Bins(view), [], [], [])
    bins = result.bins
    if at_once:
        for load in moving:
            bins.take(load)
    for load in by_falling_cpu(moving):
        if not at_once:
            bins.take(load)
        others = [host for host in [*hosts, *result.added] if host != load.host]
        host = bins.first_fit(load, others, cpu_max)
        if host is None:
            host = _opened(view, bins, load, result.added)
        if host is None:
            host = bins.least_loaded(load, others, view.config.rules.host.high)
            (result.stuck if host is None else result.squeezed).append(load)
        bins.put(load, load.host if host is None else host)
    return result


def pack_all(bins: Bins, moving: Iterable[SliceLoad], *, cpu_max: float, hosts: Sequence[HostId]) -> bool:
    """First fit of all; False if one does not fit, and then the bins are invalid."""
    for load in by_falling_cpu(moving):
        host = bins.first_fit(load, hosts, cpu_max)
        if host is None:
            return False
        bins.take(load)
        bins.put(load, host)
    return True


def _opened(view: LoadView, bins: Bins, load: SliceLoad, added: list[HostId]) -> HostId | None:
    """A new host for this slice, if one may be added and could hold it."""
    if len(added) >= view.hosts_addable or not bins.has_room_alone(load):
        return None
    host = view.new_host(len(added))
    bins.open(host)
    added.append(host)
    return host


def _names(slices: Sequence[SliceLoad], shown: int = 4) -> str:
    names = ", ".join(load.id for load in slices[:shown])
    return names if len(slices) <= shown else f"{names} and {len(slices) - shown} more"
