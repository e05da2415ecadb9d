"""Balancing as one broker sees it, for `/federation/balancing`, `lavant federation balance` and `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec
import numpy as np

from lavant.control.balancing import BalancingDecision, BalancingStatus, BrokerLoad
from lavant.service.federation.balancing.balancer import FederationBalancer
from lavant.service.observability.openmetrics import MetricFamily

DECISIONS_SHOWN = 100
MOVES_SHOWN = 100


class BrokerLoadView(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one broker."""

    subscriptions: int
    input: float
    """Utilisation: publications a second times the seconds to match one."""
    output: float
    """Utilisation: bytes out by the bandwidth that was stated, or seen."""
    matching_delay_s: float
    input_rate_per_s: float
    output_bytes_per_s: float
    bandwidth_bytes_per_s: float
    cpu: float
    backlog: int

    @classmethod
    def of(cls, load: BrokerLoad) -> BrokerLoadView:
        return cls(
            subscriptions=load.subscriptions,
            input=load.input_utilization,
            output=load.output_utilization,
            matching_delay_s=load.matching_delay_s,
            input_rate_per_s=load.input_rate_per_s,
            output_bytes_per_s=load.output_bytes_per_s,
            bandwidth_bytes_per_s=load.bandwidth_bytes_per_s,
            cpu=load.cpu,
            backlog=load.backlog,
        )


class BalancingPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Another broker as it last reported itself; at a head, another cluster with the mean of its brokers."""

    broker: str
    status: str
    load: BrokerLoadView


class BalancingMoveView(msgspec.Struct, frozen=True, kw_only=True):
    subscription: str
    broker: str


class BalancingDecisionView(msgspec.Struct, frozen=True, kw_only=True):
    """One session: what was decided and why, and the loads by broker."""

    session: str
    time_ms: int
    action: str
    reason: str
    figures: dict[str, float]
    moves: int
    first_moves: list[BalancingMoveView]
    """The first hundred of them."""
    before: dict[str, BrokerLoadView]
    predicted: dict[str, BrokerLoadView]
    measured: dict[str, BrokerLoadView]
    """Empty until the load has settled."""


class BalancingView(msgspec.Struct, frozen=True, kw_only=True):
    """Balancing at one broker."""

    name: str
    is_on: bool
    fault: str | None
    """Why balancing ended by itself."""
    policy: str
    cluster: str
    """The brokers that balance with each other; named after its head if it has one."""
    balances_with: str | None
    """At a head: the cluster that its own one balances with now."""
    status: str
    """`ok`, `busy` in a session, `n/a` if overloaded, or `stabilizing` after a session."""
    load: BrokerLoadView
    peers: list[BalancingPeer]
    sessions: int
    """Sessions in which this broker moved subscriptions away."""
    moved: int
    failed: int
    pause_ms_p99: float | None
    """Of the last thousand subscriptions that moved: for so long, neither broker delivered."""
    decisions: list[BalancingDecisionView]
    """The last hundred, the latest first."""


def balancing_view(balancer: FederationBalancer) -> BalancingView:
    machine, counts = balancer.machine, balancer.counts
    cluster = balancer.cluster
    peers = machine.peers if cluster is None else cluster.clusters
    return BalancingView(
        name=machine.broker,
        is_on=balancer.is_on,
        fault=balancer.fault,
        policy=machine.policy.name,
        cluster=balancer.place.cluster,
        balances_with=None if cluster is None else cluster.partner,
        status=str(machine.status if cluster is None else cluster.status),
        load=BrokerLoadView.of(machine.load),
        peers=[
            BalancingPeer(broker=name, status=str(report.status), load=BrokerLoadView.of(report.load))
            for name, report in peers.items()
        ],
        sessions=counts.sessions,
        moved=counts.moved,
        failed=counts.failed,
        pause_ms_p99=float(np.percentile(balancer.pauses_ms, 99)) if balancer.pauses_ms else None,
        decisions=_decisions(balancer),
    )


def balancing_families(balancer: FederationBalancer) -> Iterator[MetricFamily]:
    machine, counts, load = balancer.machine, balancer.counts, balancer.machine.load

    def gauge(name: str, help: str, value: float, unit: str = "") -> MetricFamily:
        return MetricFamily(f"lavant_balancing_{name}", "gauge", help, [({}, value)], unit)

    yield gauge("on", "1 if this broker takes part in balancing.", float(balancer.is_on))
    yield MetricFamily(
        "lavant_balancing_status",
        "gauge",
        "1 for the state that the broker is in.",
        [({"status": str(each)}, float(machine.status is each)) for each in BalancingStatus],
    )
    yield gauge("input_ratio", "Publications a second times the seconds to match one.", load.input_utilization)
    yield gauge("output_ratio", "Bytes out by the bandwidth that was stated, or seen.", load.output_utilization)
    yield gauge("matching_delay_seconds", "Time to match a publication.", load.matching_delay_s, "seconds")
    yield MetricFamily(
        "lavant_balancing_sessions", "counter", "Sessions that moved subscriptions.", [({}, counts.sessions)]
    )
    yield MetricFamily(
        "lavant_balancing_moves",
        "counter",
        "Subscriptions that balancing moved away, or could not.",
        [({"outcome": "completed"}, counts.moved), ({"outcome": "failed"}, counts.failed)],
    )
    yield MetricFamily(
        "lavant_balancing_messages",
        "counter",
        "Messages of the balancing loop; those rejected could not be read, or gave a wrong sender.",
        [
            ({"outcome": "sent"}, counts.sent),
            ({"outcome": "received"}, counts.received),
            ({"outcome": "rejected"}, counts.rejected),
        ],
    )


def _decisions(balancer: FederationBalancer) -> list[BalancingDecisionView]:
    """The latest of each session: the second one has what was measured."""
    latest: dict[str, BalancingDecision] = {}
    for each in reversed(balancer.machine.decisions):
        latest.setdefault(each.session, each)
    return [_decision(each) for each in islice(latest.values(), DECISIONS_SHOWN)]


def _decision(found: BalancingDecision) -> BalancingDecisionView:
    def loads(of: Mapping[str, BrokerLoad]) -> dict[str, BrokerLoadView]:
        return {name: BrokerLoadView.of(load) for name, load in of.items()}

    return BalancingDecisionView(
        session=found.session,
        time_ms=found.decision.time_ms,
        action=found.decision.action,
        reason=found.decision.reason,
        figures=found.decision.figures,
        moves=len(found.moves),
        first_moves=[
            BalancingMoveView(subscription=each.subscription, broker=each.destination)
            for each in found.moves[:MOVES_SHOWN]
        ],
        before=loads(found.before),
        predicted=loads(found.predicted),
        measured=loads(found.measured),
    )
