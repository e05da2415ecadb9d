"""Values of the balancing loop: loads, reports, the messages of a session, and what goes in and out of the machines.

A. Cheung, "Dynamic Load Balancing in Distributed Content-based Publish/Subscribe", Chapters 3 and 4. The *offloading*
broker moves subscriptions to *accepting* brokers within a *session*. Brokers tell each other their load by
publications (PIE, Section 3.3.1); every other message of a session is a publication too (Section 3.4).

Reports and messages may be lost, late or repeated: a report has a number, so that an older one changes nothing; a
message names its session, and each side of a session has a deadline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from lavant.core.decisions import Decision
from lavant.core.errors import UNDECODABLE, InvalidValue, LavantError

if TYPE_CHECKING:
    from lavant.control.balancing.policies.interface import OffloadPlan
    from lavant.control.balancing.press import PressSample

COVERING_MAX = 1000
"""Filters of a covering set that travel in a reply. What is cut off counts as not covered, which overestimates the
input of the accepting broker and never overloads it."""


class BalancingStatus(StrEnum):
    """The state of a broker or cluster, as in Figure 3.3."""

    OK = "ok"
    BUSY = "busy"
    NOT_AVAILABLE = "n/a"
    STABILIZING = "stabilizing"


class LoadIndex(StrEnum):
    """What a session balances."""

    INPUT = "input"
    MATCH = "match"
    OUTPUT = "output"
    SHARES = "shares"
    """All three at once."""
    COUNTS = "counts"
    """The number of subscriptions, whatever they cost."""


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one broker as measured, and its capacities.

    `input_rate_per_s` is i_r, `matching_delay_s` d_m, `output_bytes_per_s` o_u and `bandwidth_bytes_per_s` o_t of
    Section 3.3.1. Rates are those of arrival: a backlog does not change them.
    """

    subscriptions: int = 0
    input_rate_per_s: float = 0.0
    matching_delay_s: float = 0.0
    matching_delay_slope_s: float | None = None
    """Seconds that one more subscription adds; None if it was not measured, then the delay is proportional (4.7)."""
    output_bytes_per_s: float = 0.0
    bandwidth_bytes_per_s: float = math.inf
    publication_bytes: float = 0.0
    cpu: float = 0.0
    backlog: int = 0
    """Publications that wait to be matched."""
    matcher_bytes: float = 0.0
    input_queue_bytes: float = 0.0
    output_queue_bytes: float = 0.0
    memory_bytes_max: float = math.inf

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            endless = name in {"bandwidth_bytes_per_s", "memory_bytes_max"}
            if value is not None and not (value >= 0 and (endless or math.isfinite(value))):
                raise InvalidValue(f"{name} of a broker must be a number from 0 on, got {value}")

    @property
    def input_utilization(self) -> float:
        """I_r = i_r / m_r with m_r = 1 / d_m (3.1, 3.2). Above 1 the input queue grows without end."""
        return self.input_rate_per_s * self.matching_delay_s

    @property
    def output_utilization(self) -> float:
        """O_r = o_u / o_t (3.3); 0 for a broker that sends nothing, even with no bandwidth."""
        return _ratio(self.output_bytes_per_s, self.bandwidth_bytes_per_s)

    @property
    def memory_utilization(self) -> float:
        """M_r = m_u / m_t (4.12), with m_u = m_i + m_o + m_m (4.11)."""
        used = self.matcher_bytes + self.input_queue_bytes + self.output_queue_bytes
        return _ratio(used, self.memory_bytes_max)


def _ratio(used: float, total: float) -> float:
    if used == 0:
        return 0.0
    return used / total if total > 0 else math.inf


class LoadReport(msgspec.Struct, frozen=True, kw_only=True, tag="load_report"):
    """The PIE message of a broker, or of a cluster (then `broker` is its head and the load is the mean of its
    edges)."""

    broker: str
    cluster: str
    status: BalancingStatus
    load: BrokerLoad
    balanced_with: tuple[str, ...] = ()
    """Brokers whose load differs from that of `broker` by less than the thresholds."""
    number: int = 0
    """Grows with every report of a broker: an older report that arrives late is ignored."""
    is_of_cluster: bool = False
    """Global PIE: travels between heads."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, tag="session_request"):
    """Asks a broker to accept load; or a head to balance with its cluster."""

    session: str
    sender: str
    cluster: str
    index: LoadIndex
    deadline_ms: int
    """How long the accepting broker keeps itself free, counted from the arrival of this message."""


class SessionReply(msgspec.Struct, frozen=True, kw_only=True, tag="session_reply"):
    """Accepts if `status` is OK; then it holds what the offload algorithms need (Section 3.4.1)."""

    session: str
    sender: str
    status: BalancingStatus
    load: BrokerLoad = BrokerLoad()
    covering: tuple[str, ...] = ()
    """The covering subscription set (CSS) as filter texts, COVERING_MAX at most."""


class SessionDone(msgspec.Struct, frozen=True, kw_only=True, tag="session_done"):
    """Ends a session at the other side; `moved` subscriptions have changed brokers."""

    session: str
    sender: str
    moved: int = 0


class FollowCluster(msgspec.Struct, frozen=True, kw_only=True, tag="follow_cluster"):
    """A head tells its edge brokers to watch the reports of another cluster, or to stop (Section 3.4.3). They stop by
    themselves if it does not repeat it."""

    sender: str
    cluster: str
    is_on: bool


class HelpRequest(msgspec.Struct, frozen=True, kw_only=True, tag="help_request"):
    """An overloaded broker that finds nobody in its cluster asks its head to balance with another one."""

    sender: str


ControlMessage = LoadReport | SessionRequest | SessionReply | SessionDone | FollowCluster | HelpRequest
"""Encoded by `msgspec`: each carries its tag."""

encode_control = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ControlMessage).decode


def decode_control(data: bytes, sender: str) -> ControlMessage:
    """The message in bytes that came from `sender`; raises if it cannot be read, or is said to be of another broker."""
    try:
        message: ControlMessage = _decode(data)
    except (LavantError, *UNDECODABLE) as error:
        raise InvalidValue(f"a balancing message cannot be read: {error}") from None
    said = message.broker if isinstance(message, LoadReport) else message.sender
    if said != sender and not (isinstance(message, LoadReport) and message.is_of_cluster):
        raise InvalidValue(f"a balancing message says that it is of {said[:80]!r}")
    return message


# Stimuli.


class LoadMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's load, about once a second; `covering` as in `SessionReply`."""

    load: BrokerLoad
    covering: tuple[str, ...] = ()


class MessageArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A control message of another broker."""

    message: ControlMessage


class SampleTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `StartSampling`."""

    session: str
    sample: PressSample
    plan: OffloadPlan | None = None
    """Of `opened`, if it was made already."""


class MovesEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `StartMoves`: every move was completed or undone."""

    session: str
    moved: int
    failed: int = 0


class TimePassed(msgspec.Struct, frozen=True, kw_only=True):
    """`wakeup_ms` was reached."""


BalancingStimulus = LoadMeasured | MessageArrived | SampleTaken | MovesEnded | TimePassed


# Effects.


class SendControl(msgspec.Struct, frozen=True, kw_only=True):
    """Publish `message` with priority: to the broker `to`, or to everyone who watches the reports of `cluster`."""

    message: ControlMessage
    to: str | None = None
    cluster: str | None = None


class StartSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Record which local subscriptions, and which covering sets of peers, match the next publications (PRESS)."""

    session: str
    covering: Mapping[str, tuple[str, ...]]
    publications: int
    timeout_ms: int


class StopSampling(msgspec.Struct, frozen=True, kw_only=True):
    """The session ended before the sample was complete."""

    session: str


class SubscriptionMove(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription, by the name that the sample gave it, to another broker."""

    subscription: str
    destination: str


class StartMoves(msgspec.Struct, frozen=True, kw_only=True):
    """Move subscriptions with their queues, then answer `MovesEnded`."""

    session: str
    moves: tuple[SubscriptionMove, ...]


class WatchCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Subscribe to the reports of another cluster, or unsubscribe."""

    cluster: str
    is_on: bool


class BalancingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A session: who to whom and why, which subscriptions, the loads that both sides should have afterwards, and, in
    the second one that a settled session leaves, the load that was measured.
    """

    session: str
    decision: Decision
    index: LoadIndex
    offloading: str
    moves: tuple[SubscriptionMove, ...] = ()
    before: Mapping[str, BrokerLoad] = {}
    predicted: Mapping[str, BrokerLoad] = {}
    measured: Mapping[str, BrokerLoad] = {}

    def __str__(self) -> str:
        return str(self.decision)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision for the log; the same session may leave a second one when its outcome was measured."""

    decision: BalancingDecision


BalancingEffect = SendControl | StartSampling | StopSampling | StartMoves | WatchCluster | Decided
