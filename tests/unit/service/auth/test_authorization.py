"""What each kind of principal may ask, over every request that there is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lavant.broker.protocol import federation, jobs, queues, subscriptions
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.registry import (
    BROKER,
    FEDERATION,
    INGEST,
    JOBS,
    LINKS,
    MIGRATION,
    REGISTRY,
    SCOPES,
    SERVER,
    SUBSCRIPTIONS,
)
from lavant.core.errors import AccessDenied, Overloaded
from lavant.service.auth.authorization import authorize, check_rate, in_namespace, strip
from lavant.service.auth.keys import Principal
from lavant.service.auth.rate_limits import TokenBucket

ALL = frozenset(SCOPES)
ACME = Principal(name="acme", scopes=ALL, namespace="acme")
OPERATOR = Principal(name="operator", scopes=ALL)
OUTSIDE = Principal(name="outside", scopes=ALL - {"admin"})
CONFINED = Principal(name="sqs", scopes=ALL, is_confined=True)
SPREAD = queues.FanOut([], b"", b"", b"")
INTERNAL: list[Any] = [
    queues.Open(1),
    SPREAD,
    queues.MoveSome(1, 1),
    subscriptions.Deliver(SPREAD),
    jobs.ReleaseTasks([]),
    jobs.FireSchedule("s"),
    federation.AddNeighbour("b", "i", "l"),
    federation.LearnRoutes("b", "l", []),
    federation.AcknowledgeLink("b", "l", 1),
    federation.OfferSubscription("m", "", "s", "i", "b", "lavant://b", 1),
    federation.HandOverSubscription("m"),
    federation.ForgetMessages("m", [1]),
    federation.EndDeparture("m", 1),
    federation.PrepareArrival(
        "m", "i", "b", federation.MovingSubscription("", "s", "a > 1", "s", QueueConfig(), {}, None, 0, None)
    ),
    federation.TakeMessages("m", []),
    federation.OpenArrival("m", [], 1),
    federation.EndArrival("m"),
    federation.RedirectSubscription("", "s", "b", "lavant://b", 1),
]
DEAD = QueueConfig(dead_letters="dead", receives_max=2)

REQUESTS: list[tuple[Any, str]] = [
    (subscriptions.Publish([b"{}"]), "publish"),
    (subscriptions.Advertise("a = 1"), "publish"),
    (subscriptions.Unadvertise("adv"), "publish"),
    (queues.Send("q", []), "publish"),
    (jobs.SubmitJob("j"), "publish"),
    (jobs.CancelJob(1), "publish"),
    (subscriptions.Subscribe("a = 1", "s", config=DEAD), "subscribe"),
    (subscriptions.UpdateSubscription("s", "a = 2"), "subscribe"),
    (subscriptions.Unsubscribe("s"), "subscribe"),
    (subscriptions.RenewSubscription("s"), "subscribe"),
    (queues.Receive("q"), "subscribe"),
    (queues.Acknowledge("q", []), "subscribe"),
    (queues.ChangeVisibility("q", []), "subscribe"),
    (queues.Release("q", []), "subscribe"),
    (queues.EndLongPolls("q"), "subscribe"),
    (queues.Peek("q"), "subscribe"),
    (jobs.LeaseTasks("t", "w"), "subscribe"),
    (jobs.CompleteTask(1, "t", 1), "subscribe"),
    (jobs.FailTask(1, "t", 1), "subscribe"),
    (jobs.ExtendTask(1, "t", 1, 5), "subscribe"),
    (queues.CreateQueue("q", DEAD), "admin"),
    (queues.ConfigureQueue("q", DEAD), "admin"),
    (queues.TagQueue("q", {}), "admin"),
    (queues.DeleteQueue("q"), "admin"),
    (queues.PurgeQueue("q"), "admin"),
    (queues.StartMove("q", "p"), "admin"),
    (queues.CancelMove(1), "admin"),
    (jobs.DefineJobs(None), "admin"),  # type: ignore[arg-type]
    (jobs.RemoveJobType("j"), "admin"),
    (jobs.KeepJobs(), "admin"),
    (jobs.AddSchedule("s", "@daily", queue="q"), "admin"),
    (jobs.RemoveSchedule("s"), "admin"),
    (federation.RemoveNeighbour("b"), "admin"),
    (federation.MoveSubscription("s", "b"), "admin"),
    (federation.SwitchBalancing(True), "admin"),
    (subscriptions.DescribeSubscription("s"), ""),
    (subscriptions.ListSubscriptions(), ""),
    (subscriptions.ListAdvertisements(), ""),
    (queues.DescribeQueue("q"), ""),
    (queues.ListQueues("q", "p"), ""),
    (queues.ListSources("q"), ""),
    (queues.ListMoves("q"), ""),
    (jobs.DescribeJob(1), ""),
    (jobs.ListJobs(), ""),
    (jobs.DescribeJobType("j"), ""),
    (jobs.ListJobTypes(), ""),
    (jobs.ListSchedules(), ""),
    (federation.DescribeFederation(), ""),
]
KINDS = {type(request): request for request, _ in REQUESTS}
SCHEDULES = (jobs.AddSchedule, jobs.RemoveSchedule, jobs.ListSchedules)
OF_THE_SERVER = tuple(
    kind for kind in KINDS if REGISTRY[kind].machine in (JOBS, FEDERATION, MIGRATION, LINKS) and kind not in SCHEDULES
)


def test_every_request_of_clients_is_decided_about() -> None:
    assert set(KINDS) == set(REGISTRY) - set(map(type, INTERNAL))
    assert {kind for kind, each in REGISTRY.items() if each.scope == SERVER} == set(map(type, INTERNAL))
    assert {kind: REGISTRY[kind].scope for kind in KINDS} == {type(request): scope for request, scope in REQUESTS}


def test_a_broker_is_denied_everything_that_clients_ask() -> None:
    broker = Principal(name="b2", scopes=frozenset({"broker"}))
    for request in (*KINDS.values(), *INTERNAL):
        with pytest.raises(AccessDenied, match="is for links between brokers"):
            in_namespace(broker, request)


def test_whoever_was_shut_out_is_denied_everything() -> None:
    gone = Principal(name="gone", scopes=ALL)
    gone.revocation.revoke()
    for request in KINDS.values():
        with pytest.raises(AccessDenied, match="changed or removed"):
            authorize(gone, request, 0.0)


@pytest.mark.parametrize("request_", INTERNAL, ids=lambda value: type(value).__name__)
def test_what_is_the_servers_own_is_for_nobody(request_: Any) -> None:
    with pytest.raises(AccessDenied, match="the server itself"):
        in_namespace(OPERATOR, request_)


@pytest.mark.parametrize(("request_", "scope"), REQUESTS, ids=lambda value: type(value).__name__)
def test_just_the_scope_that_a_request_needs_lets_it_through(request_: Any, scope: str) -> None:
    if scope:
        in_namespace(Principal(name="k", scopes=frozenset({scope})), request_)
        with pytest.raises(AccessDenied, match=f"scope {scope}"):
            in_namespace(Principal(name="k", scopes=ALL - {scope}), request_)
    else:
        for each in SCOPES:
            in_namespace(Principal(name="k", scopes=frozenset({each})), request_)


@pytest.mark.parametrize("request_", KINDS.values(), ids=lambda value: type(value).__name__)
def test_an_operators_request_is_passed_on_as_it_is(request_: Any) -> None:
    assert in_namespace(OPERATOR, request_) is request_


@pytest.mark.parametrize(
    "request_",
    [request for request in KINDS.values() if type(request) not in OF_THE_SERVER],
    ids=lambda value: type(value).__name__,
)
def test_all_names_of_queues_are_in_the_namespace(request_: Any) -> None:
    text = msgspec.json.encode(in_namespace(ACME, request_)).decode()
    assert '"acme' in text
    assert '"q"' not in text
    assert '"dead"' not in text


@pytest.mark.parametrize("kind", OF_THE_SERVER, ids=lambda kind: kind.__name__)
def test_what_has_no_namespace_is_for_keys_without_one(kind: type) -> None:
    with pytest.raises(AccessDenied, match="as a whole"):
        in_namespace(ACME, KINDS[kind])
    request = KINDS[kind]
    assert in_namespace(Principal(name="k", scopes=ALL), request) is request


@pytest.mark.parametrize("principal", [ACME, OUTSIDE, CONFINED], ids=["acme", "outside", "confined"])
@pytest.mark.parametrize("name", ["other/q", "acme/q", "/q", "other/a/q"])
@pytest.mark.parametrize(
    "request_",
    [
        request
        for request in KINDS.values()
        if "queue" in request.__struct_fields__ and "webhook" not in request.__struct_fields__
    ],
    ids=lambda value: type(value).__name__,
)
def test_nobody_but_operators_names_a_queue_with_its_namespace(request_: Any, name: str, principal: Principal) -> None:
    with pytest.raises(AccessDenied):
        in_namespace(principal, msgspec.structs.replace(request_, queue=name))


@pytest.mark.parametrize("principal", [ACME, OUTSIDE, CONFINED], ids=["acme", "outside", "confined"])
@pytest.mark.parametrize(
    "request_",
    [
        queues.CreateQueue("q", QueueConfig(dead_letters="other/dead", receives_max=2)),
        queues.ConfigureQueue("q", QueueConfig(dead_letters="other/dead", receives_max=2)),
        subscriptions.Subscribe("a = 1", config=QueueConfig(dead_letters="other/dead", receives_max=2)),
        queues.StartMove("other/q"),
        queues.StartMove("q", "other/p"),
        queues.ListMoves("other/q"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_way_round_leads_to_other_namespaces(request_: Any, principal: Principal) -> None:
    with pytest.raises(AccessDenied):
        in_namespace(principal, request_)


@pytest.mark.parametrize(
    "request_",
    [
        request
        for request in KINDS.values()
        if REGISTRY[type(request)].machine in (SUBSCRIPTIONS, BROKER, INGEST) and not hasattr(request, "queue")
    ],
    ids=lambda v: type(v).__name__,
)
def test_no_request_about_subscriptions_leaves_its_namespace(request_: Any) -> None:
    placed = in_namespace(ACME, request_)
    assert placed.namespace == "acme"  # type: ignore[attr-defined]
    assert in_namespace(ACME, msgspec.structs.replace(request_, namespace="acme")).namespace == "acme"  # type: ignore[attr-defined]
    for principal in (ACME, OUTSIDE, CONFINED):
        with pytest.raises(AccessDenied):
            in_namespace(principal, msgspec.structs.replace(request_, namespace="other"))


def test_outside_of_namespaces_only_queues_outside_are_listed() -> None:
    for principal in (OUTSIDE, CONFINED):
        assert in_namespace(principal, queues.ListQueues()) == queues.ListQueues(is_outside=True)
    assert in_namespace(ACME, queues.ListQueues("o", is_outside=True)) == queues.ListQueues("acme/o", "acme/")


def test_moves_are_bound_to_the_namespace_whatever_the_request_says() -> None:
    for principal in (ACME, CONFINED):
        for said in (None, "", "other", principal.namespace):
            started = in_namespace(principal, queues.StartMove("q", None, namespace=said))
            cancelled = in_namespace(principal, queues.CancelMove(1, said))
            assert isinstance(started, queues.StartMove)
            assert isinstance(cancelled, queues.CancelMove)
            assert started.namespace == cancelled.namespace == principal.namespace


def test_the_keys_of_requests_of_two_namespaces_never_meet() -> None:
    def key(namespace: str, key: str) -> str:
        placed = in_namespace(Principal(name="k", scopes=ALL, namespace=namespace), subscriptions.Publish([b"{}"], key))
        assert isinstance(placed, subscriptions.Publish)
        return placed.key

    assert len({key("a", "x"), key("b", "x"), key("a", "y"), key("a-b", "x"), "x"}) == 5
    assert key("a", "x") == key("a", "x")
    assert len(key("n" * 40, "k" * 128)) <= 128


def test_answers_show_no_namespace() -> None:
    state = subscriptions.SubscriptionState(1, "s", "acme", "a = 1", "acme/s", True, None, 0)
    config = QueueConfig(dead_letters="acme/dead", receives_max=3)
    figures = queues.QueueFigures(0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, 0)
    refused = queues.Refused("UnknownQueue", "there is no queue 'acme/q'")
    move = queues.MoveState(1, "acme/q", "acme/p", None, 0, 0, 0, "failed", "there is no queue 'acme/o'", "acme")
    delivery = queues.Delivery(queues.Receipt(1, 1), b"", b"", 0, 0, 1, "", "", "acme/q")
    peeked = queues.PeekedMessage(1, "visible", 0, b"", b"", 0, 0, "", "acme/q")
    advertisement = subscriptions.AdvertisementState("adv", "acme", "a = 1", 0)
    answers: list[Any] = [
        refused,
        queues.Sent([queues.SentEntry(1), refused]),
        subscriptions.Published(["1", refused]),
        queues.Acknowledged({0: refused}),
        queues.VisibilityChanged({0: refused}),
        queues.Received([delivery]),
        queues.Peeked([peeked]),
        queues.Described(config, {}, 0, 0, figures),
        queues.Listed(["acme/q"]),
        queues.Moved(move),
        queues.Moves([move]),
        subscriptions.Subscribed(state, is_new=True),
        subscriptions.SubscriptionsListed([state]),
        subscriptions.Advertised(advertisement, is_new=True),
        subscriptions.AdvertisementsListed([advertisement]),
    ]
    for answer in answers:
        assert b"acme" in msgspec.msgpack.encode(answer)
        assert b"acme" not in msgspec.msgpack.encode(strip(ACME, answer)), answer
        assert strip(OPERATOR, answer) is answer


def test_no_answer_shows_a_name_of_another_namespace() -> None:
    """An operator may set dead letters, and start moves, across namespaces; the tenants learn nothing by it."""
    for own, principal in (("acme/", ACME), ("", CONFINED), ("", OUTSIDE)):
        config = QueueConfig(dead_letters="shop/dead", receives_max=3)
        figures = queues.QueueFigures(0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, 0)
        reason = "there is no queue 'shop/x' any more for message 1"
        move = queues.MoveState(1, f"{own}q", "shop/p", None, 0, 0, 0, "failed", reason, "shop")
        delivery = queues.Delivery(queues.Receipt(1, 1), b"", b"", 0, 0, 1, "", "", "shop/q")
        exists = f"queue '{own}q' exists already with dead_letters 'shop/dead' instead of None"
        answers: list[Any] = [
            queues.Received([delivery]),
            queues.Peeked([queues.PeekedMessage(1, "visible", 0, b"", b"", 0, 0, "", "shop/q")]),
            queues.Described(config, {}, 0, 0, figures),
            queues.Listed([f"{own}q", "shop/q"]),
            queues.Moved(move),
            queues.Moves([move]),
            queues.Refused("QueueExists", exists),
        ]
        for answer in answers:
            assert b"shop" not in msgspec.msgpack.encode(strip(principal, answer)), answer
            assert strip(OPERATOR, answer) is answer
        assert strip(principal, queues.Listed([f"{own}q", "shop/q"])) == queues.Listed(["q"])
        described = strip(principal, queues.Described(config, {}, 0, 0, figures))
        assert isinstance(described, queues.Described)
        assert described.config.receives_max is None, "it goes with dead_letters"


def test_publications_are_counted_one_by_one_against_the_rate() -> None:
    principal = Principal(name="k", scopes=ALL, bucket=TokenBucket(10))
    ten = subscriptions.Publish([b"{}"] * 10)
    check_rate(principal, ten, 100.0)
    with pytest.raises(Overloaded, match=r"in 0\.1 s"):
        check_rate(principal, subscriptions.Publish([b"{}"]), 100.0)
    check_rate(principal, queues.Send("q", []), 100.0)
    check_rate(principal, ten, 101.0)
