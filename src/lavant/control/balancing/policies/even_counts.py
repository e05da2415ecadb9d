"""The `even-counts` policy: the same number of subscriptions on every broker, whatever they cost and whatever it can
do.

As EMQX rebalances connections: a broker above the average gives its surplus to those below, and the cluster counts as
balanced within `RELATIVE` of the average. The baseline for the others.
"""

from __future__ import annotations

from itertools import islice

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.estimation import LoadChange, predict, with_slope_of
from lavant.control.balancing.policies.interface import Neighbourhood, OffloadPlan, OpenSession, Proposal
from lavant.control.balancing.values import BrokerLoad, LoadIndex, SubscriptionMove

RELATIVE = 1.1
"""EMQX's threshold: a broker gives only above this many times the average."""
LEAST = 5
"""Fewer subscriptions than this above the average are not worth a session."""


class EvenCountsPolicy:
    """Evens out counts of subscriptions."""

    name = "even-counts"
    config = BalancingConfig(detection_ms_min=5_000, detection_ms_max=15_000, stable_ms=5_000)
    samples = False

    def propose(self, view: Neighbourhood) -> list[Proposal]:
        counts = {peer: report.load.subscriptions for peer, report in view.peers.items()}
        own = view.load.subscriptions
        average = (own + sum(counts.values())) / (len(counts) + 1)
        below = tuple(peer for peer, count in counts.items() if count < average)
        if not below or own <= RELATIVE * average or own - average < LEAST:
            return []
        reason = f"{view.broker} has {own} subscriptions, the average is {average:.0f}"
        return [Proposal(index=LoadIndex.COUNTS, peers=below, reason=reason, figures={"average": average})]

    def plan(self, session: OpenSession) -> OffloadPlan:
        loads = {session.broker: session.load, **session.peers}
        average = sum(load.subscriptions for load in loads.values()) / len(loads)
        names = iter(session.sample.subscriptions)
        moves: list[SubscriptionMove] = []
        predicted: dict[str, BrokerLoad] = {}
        for peer, load in session.peers.items():
            room = max(0, int(average - load.subscriptions))
            mine = [SubscriptionMove(subscription=name, destination=peer) for name in islice(names, room)]
            moves.extend(mine)
            predicted[peer] = predict(
                with_slope_of(session.load, load), LoadChange(subscriptions=len(mine)), publication_bytes=0.0
            )
        change = LoadChange(subscriptions=-len(moves))
        predicted[session.broker] = predict(session.load, change, publication_bytes=0.0)
        return OffloadPlan(moves=tuple(moves), predicted=predicted)
