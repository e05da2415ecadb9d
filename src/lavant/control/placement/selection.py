"""Which slices leave an overloaded host: enough CPU with the least state to move.

e-StreamHub, Section V: of the sets of slices whose summed CPU is at least the host's load minus the target, take the
one with the least state. This is the subset-sum problem, solved by dynamic programming over the sum.

CPU is counted in thousandths of a host, finer than probes measure; the program has at most (slices × reachable sums)
steps, and a sum that is enough is not extended, since a slice that can be left out is not worth moving. Ties are
broken by less CPU beyond the need, fewer slices, then the ids in their order, which makes the result unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lavant.control.placement.view import SliceLoad

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
