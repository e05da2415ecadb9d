"""Outcomes of sessions: the loads that were measured when a session had settled, beside the predicted ones."""

from __future__ import annotations

import msgspec

from lavant.control.balancing.exchange import PeerReports
from lavant.control.balancing.values import BalancingDecision, BalancingStatus, BrokerLoad

WAIT_MS_MAX = 300_000
"""A peer that has not reported a settled load by then is left out."""


class Outcomes:
    """Keeps the last decision of a broker until its outcome is known."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._decision: BalancingDecision | None = None
        self._ended_ms: int | None = None

    def decided(self, decision: BalancingDecision) -> None:
        self._decision, self._ended_ms = decision, None

    def expect(self, session: str, now_ms: int) -> None:
        """The moves of a session have ended."""
        if self._decision is not None and self._decision.session == session:
            self._ended_ms = now_ms

    def settled(self, load: BrokerLoad, peers: PeerReports, now_ms: int) -> BalancingDecision | None:
        """The decision with what was measured, once every broker that took part has reported a settled load."""
        if self._decision is None or self._ended_ms is None:
            return None
        decision, reports = self._decision, peers.latest
        measured = {self._broker: load}
        for peer in sorted({move.destination for move in decision.moves}):
            received_ms = peers.received_ms(peer)
            is_new = received_ms is not None and received_ms > self._ended_ms
            if is_new and reports[peer].status in {BalancingStatus.OK, BalancingStatus.NOT_AVAILABLE}:
                measured[peer] = reports[peer].load
            elif now_ms - self._ended_ms < WAIT_MS_MAX:
                return None
        self._decision = self._ended_ms = None
        return msgspec.structs.replace(decision, measured=measured)
