"""Turns a desired placement into a plan: moves in an order that never overfills a host, and the decision's figures.

Two moves of one plan may be far apart in time, so a move comes after those that make room for it. Moves that wait for
each other in a cycle are left out; the plan is then smaller, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lavant.control.placement.bins import Bins
from lavant.control.placement.values import Move, PlacementPlan
from lavant.control.placement.view import LoadView, SliceLoad
from lavant.core.decisions import Decision
from lavant.core.ids import HostId, SliceId

LOOP = "placement"
SCALE_OUT = "scale out"
SCALE_IN = "scale in"
REBALANCE = "rebalance"
HOLD = "hold"


class DesiredPlacement(NamedTuple):
    """Where the slices should be, with the hosts that may be new and those to release."""

    host_of: Mapping[SliceId, HostId]
    added: Sequence[HostId] = ()
    released: Sequence[HostId] = ()


def make_plan(view: LoadView, desired: DesiredPlacement, *, reason: str, figures: Mapping[str, float]) -> PlacementPlan:
    """The plan that comes closest to the desired placement; its action follows from its changes."""
    ordered, left_out = _in_safe_order(view, desired)
    moves = tuple(Move(slice=load.id, source=load.host, destination=desired.host_of[load.id]) for load in ordered)
    used = {move.destination for move in moves}
    waiting = {load.id for load in left_out}
    kept = {load.host if load.id in waiting else desired.host_of[load.id] for load in view.slices}
    added = tuple(host for host in desired.added if host in used)
    released = tuple(host for host in desired.released if host not in kept)
    if left_out:
        reason += f"; {len(left_out)} moves are left out, because each waits for the memory or network of another"
    after = len(view.hosts) + len(added) - len(released)
    state_bytes = float(sum(load.memory_bytes for load in ordered))
    decision = _decision(
        view,
        action=_action(added, released, moves),
        reason=reason,
        figures={**figures, "hosts_after": float(after), "moves": float(len(moves)), "state_bytes": state_bytes},
    )
    return PlacementPlan(decision=decision, hosts_added=added, hosts_released=released, moves=moves)


def hold(view: LoadView, *, reason: str, figures: Mapping[str, float]) -> PlacementPlan:
    """A plan without changes, which says why."""
    return PlacementPlan(decision=_decision(view, action=HOLD, reason=reason, figures=figures))


def _decision(view: LoadView, *, action: str, reason: str, figures: Mapping[str, float]) -> Decision:
    common = {
        "hosts": float(len(view.hosts)),
        "average_cpu": view.average_cpu,
        "highest_cpu": max(view.host_cpu.values()),
    }
    return Decision(loop=LOOP, action=action, reason=reason, figures={**common, **figures}, time_ms=view.now_ms)


def _action(added: Sequence[HostId], released: Sequence[HostId], moves: Sequence[Move]) -> str:
    if len(added) > len(released):
        return SCALE_OUT
    if len(released) > len(added):
        return SCALE_IN
    return REBALANCE if moves else HOLD


def _in_safe_order(view: LoadView, desired: DesiredPlacement) -> tuple[list[SliceLoad], list[SliceLoad]]:
    bins = Bins(view)
    for host in desired.added:
        bins.open(host)
    waiting = [load for load in view.slices if desired.host_of[load.id] != load.host]
    ordered: list[SliceLoad] = []
    progress = True
    while waiting and progress:
        ready = list(_make_possible_moves(bins, waiting, desired))
        ordered += ready
        waiting = [load for load in waiting if bins.host_of[load.id] == load.host]
        progress = bool(ready)
    return ordered, waiting


def _make_possible_moves(bins: Bins, waiting: Iterable[SliceLoad], desired: DesiredPlacement) -> Iterable[SliceLoad]:
    for load in waiting:
        destination = desired.host_of[load.id]
        if bins.has_room(load, destination):
            bins.take(load)
            bins.put(load, destination)
            yield load
