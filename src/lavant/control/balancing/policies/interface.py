"""The interface of balancing policies: whom to ask for a session, and what to move in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.press import PressSample
from lavant.control.balancing.values import BalancingStatus, BrokerLoad, LoadIndex, LoadReport, SubscriptionMove


class Neighbourhood(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's view when it looks for a session: its own load, smoothed, and the reports of its peers."""

    broker: str
    status: BalancingStatus
    load: BrokerLoad
    peers: Mapping[str, LoadReport]
    config: BalancingConfig
    waited_ms: int = 0
    """How long this broker has deferred to overloaded ones, or has been between the overload thresholds."""
    unsettled_ms: int = 0
    """How long some peer has not been OK, counted anew after a session of this broker."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One session to try: all `peers` are asked at once, and those that accept take part."""

    index: LoadIndex
    peers: tuple[str, ...]
    reason: str
    figures: Mapping[str, float] = {}


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session in which it is time to plan: the loads of those that accepted, and the sample."""

    broker: str
    index: LoadIndex
    load: BrokerLoad
    peers: Mapping[str, BrokerLoad]
    sample: PressSample
    config: BalancingConfig


class OffloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Subscriptions to move, and the loads that all brokers of the session should have afterwards."""

    moves: tuple[SubscriptionMove, ...]
    predicted: Mapping[str, BrokerLoad]


class BalancingPolicy(Protocol):
    """Pure: the machines hold all state."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> BalancingConfig:
        """The parameters that this policy was made for."""

    @property
    def samples(self) -> bool:
        """Whether a session samples publications before it plans."""

    def propose(self, view: Neighbourhood) -> list[Proposal]:
        """Sessions to try in this order until one is accepted; none if the load is balanced."""

    def plan(self, session: OpenSession) -> OffloadPlan:
        """What to move; possibly nothing."""
