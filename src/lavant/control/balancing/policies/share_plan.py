"""The plan of one session of the `shares` policy: shares by capacity, then who gets which subscription."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from lavant.control.balancing.estimation import LoadChange, delay_slope_s, predict, with_slope_of
from lavant.control.balancing.policies.interface import OffloadPlan, OpenSession
from lavant.control.balancing.policies.refinement import Refinement
from lavant.control.balancing.press import Candidates, Words
from lavant.control.balancing.values import BrokerLoad, SubscriptionMove

SIMILAR = 0.02
"""Differences in output utilisation within which common input decides."""
LEFT_MAX = 0.8
GAIN_MIN = 2e-5
"""A plan must leave at most so much of the sum of variances, and lower it by so much: less is noise of the sample."""

Floats = npt.NDArray[np.float64]


class SharePlan:
    """Brokers of a session as columns: the own one first."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._names = [session.broker, *session.peers]
        self._loads = [session.load, *(with_slope_of(session.load, load) for load in session.peers.values())]
        self._bytes_each = session.sample.publication_bytes or session.load.publication_bytes
        self._count = len(session.sample.subscriptions)

    def solve(self) -> OffloadPlan:
        sample = self._session.sample
        rates = sample.rate_per_s(sample.vectors)
        chosen = self._give_out(rates, self._numbers(), self._outputs())
        chosen = self._refine(chosen)
        moves = tuple(
            SubscriptionMove(subscription=sample.subscriptions[row], destination=self._names[broker])
            for row, broker in enumerate(chosen.tolist())
            if broker > 0
        )
        return OffloadPlan(moves=moves, predicted=self._predict(chosen, rates))

    def _refine(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The refined plan, or nothing if that makes the brokers hardly more even than they are."""
        candidates = Candidates(self._session.sample)
        none = np.zeros_like(chosen)
        before = self._refinement(candidates, none).spread
        refinement = self._refinement(candidates, chosen)
        refinement.run()
        if not refinement.spread < min(LEFT_MAX * before, before - GAIN_MIN):
            return none
        for group, rows in enumerate(candidates.members):
            chosen[rows] = _reassigned(chosen[rows], refinement.held[group])
        return chosen

    def _refinement(self, candidates: Candidates, chosen: npt.NDArray[np.int64]) -> Refinement:
        held = np.zeros((len(candidates), len(self._loads)), np.int64)
        for group, rows in enumerate(candidates.members):
            held[group] = np.bincount(chosen[rows], minlength=len(self._loads))
        sample = self._session.sample
        vectors = [np.zeros(sample.vectors.shape[-1], np.uint64), *(sample.peers[peer] for peer in self._names[1:])]
        return Refinement(self._loads, candidates, vectors, held, delay_unit_s=self._session.config.delay_unit_s)

    def _numbers(self) -> Floats:
        """How many of our subscriptions each broker should have, so that all matching delays are equal."""
        slopes = [delay_slope_s(load) for load in self._loads]
        if min(slopes) <= 0:
            # Somewhere the delay does not depend on the number: numbers need no balance, output decides.
            return np.array([float(self._count), *(math.inf for _ in self._loads[1:])])
        weights = np.array([1.0 / slope for slope in slopes])
        delays = np.array([load.matching_delay_s for load in self._loads])
        return _fill(weights, delays, self._count)

    def _outputs(self) -> Floats:
        """The output rate of our subscriptions that each broker should have, so that all outputs are equal."""
        sample = self._session.sample
        total = float(sample.rate_per_s(sample.vectors).sum())
        each = max(self._bytes_each, 1.0)
        bandwidths = np.array([load.bandwidth_bytes_per_s for load in self._loads]) / each
        if not np.isfinite(bandwidths).all() or (bandwidths <= 0).any():
            return np.full(len(self._loads), math.inf)
        return _fill(bandwidths, np.array([load.output_utilization for load in self._loads]), total)

    def _give_out(self, rates: Floats, numbers: Floats, outputs: Floats) -> npt.NDArray[np.int64]:
        """By row of the sample, the broker that gets it; 0 stays. Few brokers and plain numbers: no arrays inside."""
        sample = self._session.sample
        brokers = range(len(self._loads))
        room = [math.inf, *(math.floor(number + 0.5) if math.isfinite(number) else math.inf for number in numbers[1:])]
        if all(math.isfinite(each) for each in room[1:]):
            room[0] = max(0, self._count - sum(room[1:]))
        wanted = [max(each, 1) for each in room]
        lacking = outputs.tolist()
        has_outputs = all(math.isfinite(each) for each in lacking)
        scales = [load.bandwidth_bytes_per_s / max(self._bytes_each, 1.0) for load in self._loads]
        vectors = [-1, *(_as_int(sample.peers[peer]) for peer in self._names[1:])]
        chosen = np.zeros(len(rates), np.int64)
        for row in np.lexsort((np.arange(len(rates)), -rates)).tolist():
            rate = float(rates[row])
            open_brokers = [broker for broker in brokers if room[broker] >= 1]
            if not open_brokers:
                break
            if rate > 0 and has_outputs:
                vector = _as_int(sample.vectors[row])
                needs = {broker: lacking[broker] / scales[broker] for broker in open_brokers}
                best = max(needs.values())
                broker = min(
                    (broker for broker in open_brokers if needs[broker] >= best - SIMILAR),
                    key=lambda broker: ((vector & ~vectors[broker]).bit_count(), -needs[broker], broker),
                )
                lacking[broker] -= rate
                vectors[broker] |= vector
            else:
                broker = max(open_brokers, key=lambda broker: (room[broker] / wanted[broker], -broker))
            chosen[row] = broker
            room[broker] -= 1
        return chosen

    def _predict(self, chosen: npt.NDArray[np.int64], rates: Floats) -> dict[str, BrokerLoad]:
        sample = self._session.sample
        predicted = {}
        for broker, (name, load) in enumerate(zip(self._names, self._loads, strict=True)):
            mine = chosen == broker
            if broker == 0:
                before = (
                    np.bitwise_or.reduce(sample.vectors, axis=0) if len(sample.vectors) else sample.vectors.sum(axis=0)
                )
                after = np.bitwise_or.reduce(sample.vectors[mine], axis=0) if mine.any() else np.zeros_like(before)
                change = LoadChange(
                    subscriptions=-int((~mine).sum()),
                    input_rate_per_s=-float(sample.rate_per_s(before & ~after)),
                    output_rate_per_s=-float(rates[~mine].sum()),
                )
            else:
                union = np.bitwise_or.reduce(sample.vectors[mine], axis=0) if mine.any() else sample.peers[name]
                change = LoadChange(
                    subscriptions=int(mine.sum()),
                    input_rate_per_s=float(sample.rate_per_s(union & ~sample.peers[name])),
                    output_rate_per_s=float(rates[mine].sum()),
                )
            predicted[name] = predict(load, change, publication_bytes=self._bytes_each)
        return predicted


def _reassigned(chosen: npt.NDArray[np.int64], held: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The same subscribers with other numbers by broker; as many as possible keep theirs."""
    after = chosen.copy()
    surplus = np.bincount(chosen, minlength=len(held)) - held
    free: list[int] = []
    for broker in np.flatnonzero(surplus > 0).tolist():
        free.extend(np.flatnonzero(chosen == broker)[: surplus[broker]].tolist())
    for broker in np.flatnonzero(surplus < 0).tolist():
        for _ in range(-int(surplus[broker])):
            after[free.pop()] = broker
    return after


def _as_int(vector: Words) -> int:
    return int.from_bytes(vector.tobytes(), "little")


def _fill(weights: Floats, levels: Floats, amount: float) -> Floats:
    """Divides `amount`, which the first broker has, such that levels become equal; none gets less than nothing.

    A broker's level rises by x / weight if it gets x. A broker whose level is above the common one takes nothing.
    """
    start = levels.copy()
    start[0] -= amount / weights[0]
    order = np.argsort(start, kind="stable")
    # The common level if only the k lowest brokers take; the one that ends above its highest taker is right.
    common = (amount + np.cumsum((start * weights)[order])) / np.cumsum(weights[order])
    takers = np.flatnonzero(common >= start[order])
    level = common[takers[-1]] if len(takers) else start[order[0]]
    return np.asarray(np.maximum(0.0, (level - start) * weights))
