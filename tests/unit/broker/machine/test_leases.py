"""Leases of temporary subscriptions: who renews them, what counts, and how they end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.broker.machine.servers import Bench

from lavant.broker.machine.leases import CHECK_INTERVAL_MS, DUE_MAX, STEP_MS_MAX, SubscriptionLeases
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.replay import replay
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    DeleteQueue,
    DescribeQueue,
    Done,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    VisibilityChange,
)
from lavant.broker.protocol.subscriptions import (
    DescribeSubscription,
    ListSubscriptions,
    RenewSubscription,
    Subscribe,
    Subscribed,
    SubscriptionsListed,
    SubscriptionState,
    Unsubscribe,
    Webhook,
)
from lavant.broker.subscriptions.limits import LEASE_MS_MAX, LEASE_MS_MIN

LEASE_MS = 60_000
TEMPORARY = Subscribe("price > 1", "tmp", lease_ms=LEASE_MS)


def run(bench: Bench, until_ms: int) -> None:
    """As a server does that is never away: it looks at the time whenever it wanted to."""
    while (wakeup_ms := bench.server.wakeup_ms()) is not None and wakeup_ms <= until_ms:
        bench.tick(wakeup_ms)
    bench.tick(until_ms)
    bench.commit()


def names(bench: Bench) -> list[str]:
    """Of the subscriptions; each has its queue."""
    listed = bench.do(ListSubscriptions(), SubscriptionsListed).subscriptions
    assert all(bench.server.queues.exists(each.queue) for each in listed)
    return [each.name for each in listed]


def restarted(bench: Bench, now_ms: int) -> Bench:
    """A server that is killed, and another on the same journal, later."""
    again = Bench(now_ms=now_ms)
    again.records = bench.records[: bench.durable]
    again.server = BrokerMachine(replay(None, again.records), position=len(again.records))
    again.perform(again.server.open(now_ms))
    again.commit()
    return again


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.do(TEMPORARY, Subscribed)
    return bench


def test_one_that_nobody_renews_ends_with_its_queue_and_the_journal_says_so(bench: Bench) -> None:
    run(bench, LEASE_MS - 1)
    assert names(bench) == ["tmp"]
    run(bench, LEASE_MS)
    assert names(bench) == []
    assert not bench.server.queues.exists("tmp")
    assert bench.commands()[-1] == Unsubscribe("tmp")
    assert list(replay(None, bench.records).subscriptions) == []


def test_one_with_a_name_for_good_has_no_lease(bench: Bench) -> None:
    bench.do(Subscribe("price > 1", "kept"), Subscribed)
    run(bench, 10 * LEASE_MS)
    assert names(bench) == ["kept"]
    assert bench.server.wakeup_ms() is None, "nothing is looked after when there is no lease"


RENEWALS: dict[str, Callable[[Receipt], Request]] = {
    "renew": lambda receipt: RenewSubscription("tmp"),
    "subscribe": lambda receipt: TEMPORARY,
    "receive": lambda receipt: Receive("tmp", wait_ms=0),
    "acknowledge": lambda receipt: Acknowledge("tmp", [receipt]),
    "extend": lambda receipt: ChangeVisibility("tmp", [VisibilityChange(receipt, 60_000)]),
}


@pytest.mark.parametrize("renewal", RENEWALS)
def test_whoever_renews_or_consumes_has_a_whole_lease_again(bench: Bench, renewal: str) -> None:
    bench.do(Send("tmp", [SendEntry(b"x")] * 5), Sent)
    found = bench.do(Receive("tmp", 5, visibility_ms=3_600_000, wait_ms=0), Received).deliveries
    for delivery in found:
        run(bench, bench.now_ms + LEASE_MS - 1)
        bench.do(RENEWALS[renewal](delivery.receipt), object)
    assert names(bench) == ["tmp"]
    run(bench, bench.now_ms + LEASE_MS)
    assert names(bench) == []


def test_others_that_look_at_it_do_not_renew_it(bench: Bench) -> None:
    run(bench, LEASE_MS - 1)
    for request in (
        DescribeQueue("tmp"),
        DescribeSubscription("tmp"),
        ListSubscriptions(),
        Send("tmp", [SendEntry(b"x")]),
    ):
        bench.do(request, object)
    run(bench, LEASE_MS)
    assert names(bench) == []


def test_renewals_are_not_written_to_the_journal(bench: Bench) -> None:
    records = len(bench.records)
    for _ in range(100):
        bench.do(RenewSubscription("tmp"), Subscribed)
        bench.do(TEMPORARY, Subscribed)
    assert len(bench.records) == records


def test_it_does_not_end_while_its_client_waits_for_a_message() -> None:
    bench = Bench()
    bench.do(Subscribe("price > 1", "tmp", lease_ms=1_000), Subscribed)
    number = bench.receive(queue="tmp", wait_ms=20_000)
    run(bench, 20_000)
    assert bench.bodies(number) == []
    run(bench, 20_999)
    assert names(bench) == ["tmp"]
    run(bench, 21_000)
    assert names(bench) == []


def test_it_ends_one_lease_after_a_client_that_waited_has_hung_up() -> None:
    bench = Bench()
    bench.do(Subscribe("price > 1", "tmp", lease_ms=1_000), Subscribed)
    bench.receive("bob", queue="tmp", wait_ms=20_000)
    run(bench, 5_500)
    bench.server.gone("bob")
    run(bench, 6_500)
    assert names(bench) == []


def test_the_queue_of_others_stays_and_whoever_waits_there_does_not_renew(bench: Bench) -> None:
    bench.create("shared")
    bench.do(Subscribe("price > 1", "joined", "shared", lease_ms=1_000), Subscribed)
    number = bench.receive(queue="shared", wait_ms=20_000)
    run(bench, 1_000)
    assert names(bench) == ["tmp"]
    assert bench.answer(number) is None
    assert bench.server.queues.exists("shared")


def test_answers_say_when_it_ends(bench: Bench) -> None:
    run(bench, 4_000)
    [listed] = bench.do(ListSubscriptions(), SubscriptionsListed).subscriptions
    described = bench.do(DescribeSubscription("tmp"), Subscribed).subscription
    assert listed == described
    assert (described.lease_ms, described.expires_ms) == (LEASE_MS, LEASE_MS)
    renewed = bench.do(RenewSubscription("tmp"), Subscribed)
    assert (renewed.subscription.expires_ms, renewed.is_new) == (4_000 + LEASE_MS, False)
    assert bench.do(TEMPORARY, Subscribed).subscription.expires_ms == 4_000 + LEASE_MS
    kept = bench.do(Subscribe("a = 1", "kept"), Subscribed).subscription
    assert (kept.is_temporary, kept.expires_ms) == (False, 0)


# ── time that does not count ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("away_ms", [0, LEASE_MS, 365 * 86_400_000])
def test_a_server_that_starts_gives_a_whole_lease(bench: Bench, away_ms: int) -> None:
    run(bench, LEASE_MS - 1)
    again = restarted(bench, LEASE_MS - 1 + away_ms)
    run(again, again.now_ms + LEASE_MS - 1)
    assert names(again) == ["tmp"]
    run(again, again.now_ms + 1)
    assert names(again) == []


def test_of_a_time_in_which_the_server_did_not_run_little_counts(bench: Bench) -> None:
    """A machine that was suspended, a process that was stopped, a clock that was held and is believed now."""
    for _ in range(3):
        bench.tick(bench.now_ms + 3_600_000)
    assert names(bench) == ["tmp"]
    run(bench, bench.now_ms + LEASE_MS - 3 * STEP_MS_MAX)
    assert names(bench) == []


def test_the_server_looks_at_the_time_often_enough_for_every_step_to_count() -> None:
    leases = SubscriptionLeases(0)
    leases.hold(state(1), 0)
    assert leases.wakeup_ms() == CHECK_INTERVAL_MS
    assert CHECK_INTERVAL_MS < STEP_MS_MAX


# ── how it ends otherwise ─────────────────────────────────────────────────────────────────────────────────────────────


def test_what_ended_before_its_time_does_not_end_twice(bench: Bench) -> None:
    bench.do(Unsubscribe("tmp"), Done)
    bench.do(Subscribe("price > 1", "tmp"), Subscribed)  # another one, for good
    bench.do(Subscribe("price > 1", "other", lease_ms=LEASE_MS), Subscribed)
    bench.do(DeleteQueue("other"), Done)
    bench.create("other")
    run(bench, 2 * LEASE_MS)
    assert names(bench) == ["tmp"]
    assert bench.server.queues.exists("other")


def test_a_full_disk_lets_it_stay_until_there_is_room(bench: Bench) -> None:
    bench.server.is_full = bench.server.is_exhausted = True
    run(bench, 3 * LEASE_MS)
    assert names(bench) == ["tmp"]
    bench.server.is_exhausted = False
    run(bench, 4 * LEASE_MS)
    assert names(bench) == []


def test_many_end_in_portions() -> None:
    bench = Bench()
    for number in range(DUE_MAX + 10):
        bench.do(Subscribe("price > 1", f"tmp-{number:03}", lease_ms=1_000), Subscribed)
    bench.tick(1_000)
    assert len(names(bench)) == 10
    assert bench.server.wakeup_ms() == 1_001
    run(bench, 1_001)
    assert names(bench) == []


def test_one_that_was_left_behind_by_a_version_without_leases_ends_too() -> None:
    bench = Bench()
    bench.do(Subscribe("a = 1", "stream-1", config=QueueConfig(labels={"lavant-ephemeral": "1"})), Subscribed)
    bench.do(Subscribe("a = 1", "tmp-0123456789abcdef", config=QueueConfig(retention_ms=3_600_000)), Subscribed)
    bench.do(Subscribe("a = 1", "tmp-0123456789abcde0"), Subscribed)
    bench.do(Subscribe("a = 1", "tmp-files", config=QueueConfig(retention_ms=3_600_000)), Subscribed)
    run(bench, LEASE_MS)
    assert len(names(bench)) == 4, "they are looked at when a server starts"
    again = restarted(bench, LEASE_MS)
    run(again, 2 * LEASE_MS)
    assert names(again) == ["tmp-0123456789abcde0", "tmp-files"]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_has_no_lease_cannot_be_renewed(bench: Bench) -> None:
    bench.do(Subscribe("price > 1", "kept"), Subscribed)
    assert bench.do(RenewSubscription("kept"), Refused).code == "InvalidValue"
    assert bench.do(RenewSubscription("nothing"), Refused).code == "UnknownSubscription"
    assert bench.do(RenewSubscription("tmp", "acme"), Refused).code == "UnknownSubscription"


@pytest.mark.parametrize("lease_ms", [-1, LEASE_MS_MIN - 1, LEASE_MS_MAX + 1])
def test_a_lease_has_bounds(lease_ms: int) -> None:
    bench = Bench()
    refused = bench.do(Subscribe("price > 1", "x", lease_ms=lease_ms), Refused)
    assert "lease_ms must be between 1000 and 86400000" in refused.reason


def test_a_webhook_cannot_renew() -> None:
    bench = Bench()
    wanted = Subscribe("price > 1", "x", webhook=Webhook("http://example.com/"), lease_ms=LEASE_MS)
    assert "webhook has no client" in bench.do(wanted, Refused).reason
    assert names(bench) == []


def test_the_same_name_with_another_lease_is_another_subscription(bench: Bench) -> None:
    for lease_ms in (0, 2 * LEASE_MS):
        refused = bench.do(Subscribe("price > 1", "tmp", lease_ms=lease_ms), Refused)
        assert refused.code == "DuplicateSubscription"


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def state(number: int) -> SubscriptionState:
    return SubscriptionState(number, f"s{number}", "", "a = 1", f"s{number}", True, None, 0, lease_ms=LEASE_MS)


def test_what_is_over_is_not_kept_for_the_length_of_its_lease() -> None:
    leases = SubscriptionLeases(0)
    for number in range(1, 10_001):
        leases.hold(state(number), 0)
        leases.forget(number)
    assert len(leases._heap) < 100
    assert (len(leases), leases._by_queue, leases.wakeup_ms()) == (0, {}, None)


def test_the_queue_of_another_subscription_is_unused_by_the_one_before() -> None:
    leases = SubscriptionLeases(0)
    leases.hold(state(1), 0)
    second = SubscriptionState(2, "s1", "", "a = 1", "s1", True, None, 0, lease_ms=2 * LEASE_MS)
    leases.hold(second, 0)
    leases.forget(1)
    leases.used("s1", 5_000)
    assert leases.ends_ms(2, 5_000) == 5_000 + 2 * LEASE_MS
