"""The two sides of a session, each with a deadline for its present step (Section 3.4.1).

    offloading:  ASKING ──all replied──► SAMPLING ──sample──► MOVING ──moves ended──► (done is told to the others)
                   │ none accepted: the next proposal
    accepting:   from an accepted request until the other side says that it is done, or no longer renews the request

A step that passes its deadline ends the session, or goes on with those that have replied. So no lost message, dead
broker or silent subscriber keeps a broker BUSY.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum

import msgspec

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.policies.interface import OffloadPlan, OpenSession, Proposal
from lavant.control.balancing.press import PressSample
from lavant.control.balancing.values import BrokerLoad, SessionReply


class SessionStep(StrEnum):
    """Where an offloading broker is."""

    ASKING = "asking"
    SAMPLING = "sampling"
    MOVING = "moving"


class Offloading(msgspec.Struct, kw_only=True):
    """The session of the offloading broker."""

    session: str
    proposals: Sequence[Proposal]
    """The one that is being tried, and those after it."""
    deadline_ms: int
    renew_ms: int
    """When the request is repeated: to those that have not answered, then to those that accepted, to renew their
    lease.
    """
    step: SessionStep = SessionStep.ASKING
    replies: dict[str, SessionReply] = {}
    asked_load: BrokerLoad = BrokerLoad()
    """Our load when the others had replied with theirs."""
    before: dict[str, BrokerLoad] = {}
    plan: OffloadPlan | None = None

    @property
    def proposal(self) -> Proposal:
        return self.proposals[0]

    @property
    def accepted(self) -> dict[str, SessionReply]:
        """Those that take part, by name."""
        return {peer: reply for peer, reply in sorted(self.replies.items()) if reply.status == "ok"}

    @property
    def loads(self) -> dict[str, BrokerLoad]:
        """As those that take part told them."""
        return {peer: reply.load for peer, reply in self.accepted.items()}

    def opened(self, broker: str, load: BrokerLoad, sample: PressSample, config: BalancingConfig) -> OpenSession:
        """What to plan; the loads are kept as those of before the moves."""
        if not self.before:
            self.before = {broker: load, **self.loads}
        return OpenSession(
            broker=broker, index=self.proposal.index, load=load, peers=self.loads, sample=sample, config=config
        )

    @property
    def to_ask(self) -> list[str]:
        """Those that a request goes to: the ones that have not answered, or, later, those that take part."""
        if self.step is SessionStep.ASKING:
            return [peer for peer in self.proposal.peers if peer not in self.replies]
        return list(self.accepted)

    @property
    def is_answered(self) -> bool:
        return set(self.replies) >= set(self.proposal.peers)


class Accepting(msgspec.Struct, kw_only=True, frozen=True):
    """The session of an accepting broker."""

    session: str
    offloading: str
    deadline_ms: int


class Backoff:
    """Sessions that found nothing to move are tried again after a pause that doubles, up to sixteen times the first."""

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._tries: dict[Hashable, tuple[int, int]] = {}

    def note(self, key: Hashable, now_ms: int) -> None:
        count = self._tries.get(key, (0, 0))[0]
        self._tries[key] = (min(count + 1, 4), now_ms + self._pause_ms * 2**count)

    def may_try(self, key: Hashable, now_ms: int) -> bool:
        return key not in self._tries or now_ms >= self._tries[key][1]

    def clear(self) -> None:
        """Something has moved: everything may be tried again."""
        self._tries.clear()
