"""Brokers that balance by themselves in virtual time: it holds, and mistakes that are put into it are found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.simulation.mistakes import Break, check_found, check_holds
from tests.simulation.repetition import check_repetition
from tests.simulation.test_migration import forgets_before_it_is_taken, hands_over_before_the_route

from lavant.broker.federation.migration.machine import SubscriptionMigrations
from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.policies.interface import OffloadPlan, OpenSession
from lavant.control.balancing.policies.shares import SharesPolicy
from lavant.control.balancing.values import ControlMessage, SubscriptionMove
from lavant.simulation.federation import balanced_server
from lavant.simulation.kernel import run
from lavant.simulation.scenarios import balancing
from lavant.simulation.scenarios.balancing import BalancingOptions

STEPS = (
    *("OfferSubscription", "PrepareArrival", "HandOverSubscription", "TakeMessages"),
    *("ForgetMessages", "OpenArrival", "EndDeparture", "EndArrival"),
)
SMALL = BalancingOptions(policy="any")
DYING = BalancingOptions(swarm=False, kills_per_step=0.1, kills_per_min=20.0, loss=0.1)
"""Brokers die after every tenth step, and messages are lost."""
PAIRS = BalancingOptions(policy="thesis")
"""Brokers that even out two at a time come to rest last."""


def test_balancing_holds_whatever_happens() -> None:
    figures = check_holds(balancing.SCENARIO, range(1, 21), minutes=0.06, options=SMALL)
    wanted = ["published", "moved", "acknowledged", "left while moving", "clusters cut", "rejected", "kills"]
    assert [name for name in wanted if not figures[name]] == []


def test_pairs_of_brokers_in_two_clusters_have_the_time_to_come_to_rest() -> None:
    outcome = run(balancing.SCENARIO, 85, minutes=0.15, options=BalancingOptions(policy="any"))
    assert outcome.violation is None, outcome.report()
    assert outcome.figures["moved"] > 50


@pytest.mark.soak
@pytest.mark.parametrize("options", [SMALL, DYING, PAIRS], ids=["swarm", "dying", "pairs"])
def test_balancing_holds_in_many_worlds(options: BalancingOptions) -> None:
    figures = check_holds(balancing.SCENARIO, range(1, 201), minutes=0.15, options=options)
    assert [step for step in STEPS if not figures[f"killed after {step}"]] == []


@pytest.mark.soak
def test_a_seed_gives_the_same_trace_in_processes_that_hash_differently(tmp_path: Any) -> None:
    check_repetition("balancing", tmp_path, seed=3, minutes=0.05)


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def sessions_have_no_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EdgeBalancer, "_expire", lambda self, now_ms, effects: None)


def cluster_sessions_have_no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterBalancer, "_expire", lambda self, now_ms, effects: None)
    patch.setattr(ClusterBalancer, "_is_over", lambda self, session, now_ms: False)


def clusters_are_watched_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EdgeBalancer, "_unfollow", lambda self, cluster, effects: None)


def anybody_is_believed(patch: pytest.MonkeyPatch) -> None:
    decode = msgspec.msgpack.Decoder(ControlMessage).decode
    patch.setattr(balanced_server, "decode_control", lambda data, sender: decode(data))


def anybody_speaks_for_others(patch: pytest.MonkeyPatch) -> None:
    find = SubscriptionMigrations.neighbour_to
    received = SubscriptionMigrations.received

    def believe(migrations: SubscriptionMigrations, session: Any, frame: Any) -> None:
        patch.setattr(SubscriptionMigrations, "neighbour_to", lambda self, identity: session.neighbour)
        try:
            if getattr(frame, "target", "") == migrations._machine.own.identity:
                received(migrations, session, frame)
                return
        finally:
            patch.setattr(SubscriptionMigrations, "neighbour_to", find)
        received(migrations, session, frame)

    patch.setattr(SubscriptionMigrations, "received", believe)


def moves_without_need(patch: pytest.MonkeyPatch) -> None:
    plan = SharesPolicy.plan

    def one_more(policy: SharesPolicy, session: OpenSession) -> OffloadPlan:
        found = plan(policy, session)
        if found.moves or not session.sample.subscriptions:
            return found
        peer = next(iter(session.peers))
        move = SubscriptionMove(subscription=session.sample.subscriptions[0], destination=peer)
        return OffloadPlan(moves=(move,), predicted=found.predicted)

    patch.setattr(SharesPolicy, "plan", one_more)
    patch.setattr("lavant.control.balancing.policies.shares.TRIGGER", 0.0)


def moves_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharesPolicy, "propose", lambda self, view: [])


def moves_are_not_resumed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SubscriptionMigrations, "tick", lambda self: None)


MISTAKES: dict[str, Break] = {
    "sessions have no deadline": sessions_have_no_deadline,
    "sessions of clusters have no end": cluster_sessions_have_no_end,
    "another cluster is watched for ever": clusters_are_watched_for_ever,
    "a message is believed, whoever it says it is of": anybody_is_believed,
    "a broker may speak for one elsewhere": anybody_speaks_for_others,
    "subscriptions move without need": moves_without_need,
    "nothing moves": moves_nothing,
    "a move is not resumed": moves_are_not_resumed,
    "messages are forgotten before the new broker has them": forgets_before_it_is_taken,
    "a subscription is handed over before the route is known": hands_over_before_the_route,
}


@pytest.mark.soak
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_mistake(mistake: str) -> None:
    check_found(balancing.SCENARIO, MISTAKES[mistake], minutes=0.1, options=DYING)
