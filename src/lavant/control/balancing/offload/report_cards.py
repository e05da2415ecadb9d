"""Report cards: how many subscribers of each candidate to offload, and what that leads to (Section 4.2.1).

A card says, for one candidate: the number of subscribers to offload, the difference between both brokers afterwards
(negative if the offloading broker ends below the other), the extra input at the accepting broker, and the input that
leaves the offloading one. Cards of all candidates are columns, computed together.

The number of subscribers follows Figures 4.1, 4.5, 4.6 and 4.8, which count n down from the largest possible number and
stop where the brokers are no longer balanced. In other words: the least n that balances them, or all that fit. The
largest possible n is the one that leaves the *accepting* broker below the lower overload threshold in every resource.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.estimation import Floats, LoadChange, LoadPrediction, predict, with_slope_of
from lavant.control.balancing.press import Candidates, PressSample, Words
from lavant.control.balancing.values import BrokerLoad

Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LEAST_GAIN = 1e-9
"""Of a difference between ratios: less is rounding."""


class PairOffload:
    """An offload in progress: predicted loads of both brokers, the candidates left, and the subscriptions chosen."""

    def __init__(
        self, ours: BrokerLoad, theirs: BrokerLoad, *, sample: PressSample, peer: str, config: BalancingConfig
    ) -> None:
        self.ours = ours
        self.theirs = with_slope_of(ours, theirs)
        self.config = config
        self.candidates = Candidates(sample)
        self.chosen: dict[str, list[str]] = defaultdict(list)
        self._peer = peer
        self._vector: Words = sample.peers[peer].copy()
        self._bytes_each = sample.publication_bytes or ours.publication_bytes
        self._group = np.repeat(np.arange(len(self.candidates)), self.candidates.sizes)
        starts = np.cumsum(self.candidates.sizes) - self.candidates.sizes
        self._starts = starts
        self._n = np.arange(len(self._group)) - starts[self._group] + 1

    def cards(self) -> Cards:
        """Every candidate with every number of subscribers, one row each."""
        return Cards(self)

    def take(self, group: int, count: int, reduced_per_s: float, extra_per_s: float) -> None:
        """Chooses `count` subscribers of a candidate and updates both loads and the accepting broker's vector (4.6)."""
        rate = float(self.candidates.rates_per_s[group])
        names = self.candidates.take(group, count)
        self.chosen[self._peer].extend(names)
        self._vector |= self.candidates.vectors[group]
        out = rate * len(names)
        ours = LoadChange(subscriptions=-len(names), input_rate_per_s=-reduced_per_s, output_rate_per_s=-out)
        theirs = LoadChange(subscriptions=len(names), input_rate_per_s=extra_per_s, output_rate_per_s=out)
        self.ours = predict(self.ours, ours, publication_bytes=self._bytes_each)
        self.theirs = predict(self.theirs, theirs, publication_bytes=self._bytes_each)

    @property
    def is_overloaded(self) -> bool:
        """Whether the offloading broker exceeds the lower overload threshold in a resource that sessions relieve."""
        load = self.ours
        return max(load.input_utilization, load.output_utilization, load.memory_utilization) >= self.config.overload_low


class Cards:
    """Predictions for each candidate and number of subscribers, and the number to offload of each candidate."""

    def __init__(self, offload: PairOffload) -> None:
        candidates = offload.candidates
        self._offload = offload
        self.extra_per_s = candidates.extra_per_s(offload._vector)
        self.reducible_per_s = candidates.reducible_per_s()
        group, n = offload._group, offload._n
        self._is_there = n <= candidates.sizes[group]
        self._is_all = n == candidates.sizes[group]
        out = candidates.rates_per_s[group] * n
        reduced = np.where(self._is_all, self.reducible_per_s[group], 0.0)
        self.ours = LoadPrediction(offload.ours, -n, -reduced, -out, offload._bytes_each)
        self.theirs = LoadPrediction(offload.theirs, n, self.extra_per_s[group], out, offload._bytes_each)
        self._fits = self.theirs.highest < offload.config.overload_low

    def choose_counts(self, is_balanced: Flags, is_allowed: Flags | None = None) -> Counts:
        """By candidate, the n of Figure 4.1: the least one from which on `is_balanced` holds, or all that fit; 0 if
        none does. Rows that are not allowed are passed over, like `continue` in Figure 4.8.
        """
        offload = self._offload
        allowed = self._is_there & self._fits
        if is_allowed is not None:
            allowed &= is_allowed
        n = offload._n
        top = self._highest(np.where(allowed, n, 0))
        last = self._highest(np.where(allowed & ~is_balanced, n, 0))
        beyond = np.where(allowed & (n > last[offload._group]), n, np.iinfo(np.int64).max)
        least = np.minimum.reduceat(beyond, offload._starts) if len(n) else np.zeros(0, np.int64)
        return np.where(last == top, top, least)

    def _highest(self, rows: Counts) -> Counts:
        return np.maximum.reduceat(rows, self._offload._starts) if len(rows) else np.zeros(0, np.int64)

    def at(self, rows: Floats, counts: Counts) -> Floats:
        """The value of each candidate at its chosen number; infinite where that is 0."""
        index = np.maximum(self._offload._starts + counts - 1, 0)
        return np.where(counts > 0, rows[index] if len(rows) else 0.0, np.inf)

    def reduced_per_s(self, counts: Counts) -> Floats:
        """The input that leaves with each candidate: none unless all of its subscribers leave."""
        return np.where(counts == self._offload.candidates.sizes, self.reducible_per_s, 0.0)

    def take(self, group: int, counts: Counts) -> None:
        reduced = float(self.reduced_per_s(counts)[group])
        self._offload.take(group, int(counts[group]), reduced, float(self.extra_per_s[group]))


def best_card(differences: Floats, ties: tuple[Floats, ...], *, before: float, is_overloaded: bool) -> int | None:
    """Figures 4.2 and 4.3: the candidate whose difference is closest to 0, or None if none is better than before.

    An overloaded broker takes a candidate however far it passes the other broker: the negative difference closest to 0,
    or, if there is none, the smallest. Ties are broken by `ties`, larger first, then by position. A candidate that
    leaves the difference as it is would be moved for nothing; the figures would take it.
    """
    possible = np.flatnonzero(differences < before - LEAST_GAIN)
    if len(possible) == 0:
        return None
    values = differences[possible]
    if is_overloaded:
        below = values < 0
        key = np.where(below, -values, np.inf) if below.any() else values
    else:
        key = np.abs(values)
    order = np.lexsort((*(-tie[possible] for tie in reversed(ties)), key))
    best = int(possible[order[0]])
    if not is_overloaded and abs(float(differences[best])) > abs(before) - LEAST_GAIN:
        return None
    return best
