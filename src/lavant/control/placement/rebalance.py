"""Rebalancing: few, cheap moves and swaps that bring all hosts near to the average.

The imbalance is the sum of squared loads. Moving CPU c from a host with load a to one with load b lowers it by 2c(a − b
− c); a swap of two slices counts with the difference of their CPU. The cost of a change, a fixed part for each move and
one for its state, is in the same unit. The best change (gain − cost) is made repeatedly, until all hosts are balanced
enough or no change is worth its cost. Large slices naturally come first, as in LPT scheduling, since they gain the
most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lavant.control.placement.bins import Bins
from lavant.control.placement.config import ForecastConfig
from lavant.control.placement.view import SliceLoad
from lavant.core.ids import HostId

HOSTS_LOOKED_AT = 4
"""Hosts considered at either end of the load ranking: the best change is almost always between those."""
CHANGES_MAX = 1000


class _Change(NamedTuple):
    """A slice to another host, and perhaps one back in exchange."""

    worth: float
    load: SliceLoad
    destination: HostId
    back: SliceLoad | None = None


def move_cost(config: ForecastConfig, load: SliceLoad) -> float:
    return config.move_cost + config.state_cost_per_gib * load.memory_bytes / 1024**3


def rebalance(bins: Bins, hosts: Sequence[HostId], config: ForecastConfig, *, low: float, high: float) -> None:
    """Move slices among `hosts` until all are between `low` and `high` or, if the average does not permit that, within
    `spread` of the average.
    """
    for _ in range(CHANGES_MAX):
        ranked = sorted(hosts, key=lambda host: (bins.cpu(host), host))
        average = math.fsum(map(bins.cpu, hosts)) / len(hosts)
        if bins.cpu(ranked[-1]) <= max(high, average + config.spread) and bins.cpu(ranked[0]) >= min(
            low, average - config.spread
        ):
            return
        best = max(_changes(bins, ranked, config), key=_rank, default=None)
        if best is None or best.worth <= 0:
            return
        _make(bins, best)


def _rank(change: _Change) -> tuple[float, str, str]:
    return change.worth, change.load.id, change.destination


def _changes(bins: Bins, ranked: Sequence[HostId], config: ForecastConfig) -> Iterator[_Change]:
    """Changes between one of the most and one of the least loaded hosts, of which one is the extreme."""
    most, least = ranked[: -HOSTS_LOOKED_AT - 1 : -1], ranked[:HOSTS_LOOKED_AT]
    for source in most:
        for destination in least:
            if bins.cpu(source) > bins.cpu(destination) and (source == ranked[-1] or destination == ranked[0]):
                yield from _moves(bins, source, destination, config)
                yield from _swaps(bins, source, destination, config)


def _moves(bins: Bins, source: HostId, destination: HostId, config: ForecastConfig) -> Iterator[_Change]:
    difference = bins.cpu(source) - bins.cpu(destination)
    for load in bins.slices(source):
        cpu = bins.cpu_of(load)
        worth = 2 * cpu * (difference - cpu) - move_cost(config, load)
        if worth > 0 and bins.has_room(load, destination):
            yield _Change(worth, load, destination)


def _swaps(bins: Bins, source: HostId, destination: HostId, config: ForecastConfig) -> Iterator[_Change]:
    difference = bins.cpu(source) - bins.cpu(destination)
    for load in bins.slices(source):
        for back in bins.slices(destination):
            cpu = bins.cpu_of(load) - bins.cpu_of(back)
            worth = 2 * cpu * (difference - cpu) - move_cost(config, load) - move_cost(config, back)
            if (
                worth > 0
                and bins.has_room(load, destination, without=back)
                and bins.has_room(back, source, without=load)
            ):
                yield _Change(worth, load, destination, back)


def _make(bins: Bins, change: _Change) -> None:
    source = bins.host_of[change.load.id]
    bins.take(change.load)
    if change.back is not None:
        bins.take(change.back)
        bins.put(change.back, source)
    bins.put(change.load, change.destination)
