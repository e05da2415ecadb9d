"""The client that waits, against a real server: publish, subscribe, handlers, leases, and what is kept for whom."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.relays import Forgetful
from tests.integration.serving import Served

from lavant import Client, Publication, connect
from lavant.client.queues import QueueConfig
from lavant.client.subscriptions.notification import Notification
from lavant.client.subscriptions.subscription import Subscription
from lavant.core.errors import (
    DuplicateSubscription,
    FilterSyntaxError,
    InvalidValue,
    LimitExceeded,
    PartlyRefused,
    UnknownQueue,
    UnknownSubscription,
)
from lavant.core.ids import PublicationId

WAIT_S = 20.0


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """All subscriptions and queues are gone afterwards."""
    with connect(served.url) as connection:
        yield connection
        for state in list(connection.subscriptions()):
            connection.unsubscribe(state.name)
        for name in list(connection.queues()):
            connection.queue(name).delete()


def values(notifications: Iterator[Notification]) -> list[object]:
    return [each.attributes["n"] for each in notifications]


def waiting(client: Client, queue: str) -> tuple[int, int]:
    figures = client.queue(queue).describe().figures
    return figures.visible + figures.delayed, figures.in_flight


# ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_matches_is_notified_with_all_that_was_published(client: Client) -> None:
    with client.subscribe("price > 100") as expensive, client.subscribe("symbol = 'IBM'") as ibm:
        first = client.publish({"symbol": "IBM", "price": 121.5, "is_late": False}, payload=b"\x00\xff")
        client.publish({"symbol": "YHOO", "price": 18.37})
        client.publish(Publication(attributes={"symbol": "IBM"}, id=PublicationId("mine"), time_s=0.007))
        [only] = expensive.notifications(count=1, timeout_s=WAIT_S)
        assert (only.id, only.payload, only.attempt) == (first, b"\x00\xff", 1)
        assert only.attributes == {"symbol": "IBM", "price": 121.5, "is_late": False}
        assert abs(only.time_s - time.time()) < WAIT_S
        assert [(each.id, each.time_s == 0.007) for each in ibm.notifications(count=2, timeout_s=WAIT_S)] == [
            (first, False),
            ("mine", True),
        ]


def test_many_are_published_in_order(client: Client) -> None:
    with client.subscribe("n >= 0") as everything:
        ids = client.publish_many({"n": n} for n in range(2500))
        assert len(set(ids)) == 2500
        found = list(everything.notifications(count=2500, timeout_s=WAIT_S))
    assert [each.id for each in found] == ids
    assert values(iter(found)) == list(range(2500))


def test_what_cannot_be_published_says_why_and_holds_up_nobody(client: Client) -> None:
    with client.subscribe("exists(n)") as everything:
        large: dict[str, str | int] = {"n": 2, **{f"a{i}": "x" * 60_000 for i in range(20)}}
        rows: list[Any] = [{"n": 1}, {"n": math.nan}, {"n": 3}, large, {"n": [5]}]
        with pytest.raises(PartlyRefused) as raised:
            client.publish_many(rows)
        kinds = {place: type(error) for place, error in raised.value.refused.items()}
        assert kinds == {1: InvalidValue, 3: LimitExceeded, 4: InvalidValue}
        assert values(everything.notifications(count=2, timeout_s=WAIT_S)) == [1, 3]
    with pytest.raises(LimitExceeded, match="bytes in JSON"):
        client.publish(large)
    with pytest.raises(InvalidValue, match="nan"):
        client.publish({"n": math.nan})
    with pytest.raises(InvalidValue, match="its own payload"):
        client.publish(Publication(attributes={}), payload=b"x")
    assert client.publish_many([]) == []


def test_a_publication_whose_answer_is_lost_is_published_once(client: Client, served: Served) -> None:
    client.subscribe("n > 0", name="s")
    with Forgetful(served.host, served.port) as relay:
        with connect(relay.url) as unlucky:
            first, second = unlucky.publish_many([{"n": 1}, {"n": 2}])
        assert relay.lost == 1
    with client.subscription("s") as subscription:
        assert [each.id for each in subscription.notifications(count=2, timeout_s=WAIT_S)] == [first, second]
    assert client.queue("s").describe().figures.sent == 2


def test_a_tuned_publisher_publishes_over_the_same_server(client: Client, tmp_path: Path) -> None:
    with client.subscribe("n >= 0") as everything:
        with client.publisher(tmp_path, controller="eager") as publisher:
            for n in range(200):
                assert publisher.publish(Publication(attributes={"n": n}, id=PublicationId(f"p{n}")), wait_s=WAIT_S)
        found = {each.id for each in everything.notifications(count=200, timeout_s=WAIT_S)}
    assert found == {f"p{n}" for n in range(200)}


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_filter_with_a_mistake_is_shown_with_its_place(client: Client) -> None:
    with pytest.raises(FilterSyntaxError, match=r"price >> 5\n {9}\^$") as raised:
        client.subscribe("price >> 5")
    assert raised.value.position == 7


def test_a_subscription_without_a_name_ends_when_it_is_closed(client: Client) -> None:
    with client.subscribe("n > 0") as nameless:
        assert [state.name for state in client.subscriptions()] == [nameless.name]
        assert client.queue(nameless.queue).describe().config.retention_s == 3600
    assert list(client.subscriptions()) == []
    assert list(client.queues()) == []
    nameless.close()
    with pytest.raises(InvalidValue, match="was closed; subscribe again"):
        next(iter(nameless))


def test_a_named_subscription_keeps_what_comes_while_nobody_listens(client: Client, served: Served) -> None:
    with connect(served.url) as other:
        other.subscribe("n > 0", name="kept")
    client.publish_many([{"n": 1}, {"n": 2}])
    with client.subscribe("n > 0", name="kept") as again:
        assert values(again.notifications(count=2, timeout_s=WAIT_S)) == [1, 2]
    client.publish({"n": 3})
    with client.subscription("kept") as known:
        assert values(known.notifications(count=1, timeout_s=WAIT_S)) == [3]
    with pytest.raises(DuplicateSubscription, match="another filter"):
        client.subscribe("n > 1", name="kept")
    again.unsubscribe()
    with pytest.raises(UnknownSubscription):
        client.subscription("kept")
    again.unsubscribe()


def test_a_filter_changes_and_what_waits_stays(client: Client, served: Served) -> None:
    subscription = client.subscribe("n > 0", name="kept")
    client.publish({"n": 1})
    subscription.update("n < 0")
    assert subscription.state.filter == "n < 0"
    client.publish_many([{"n": 2}, {"n": -1}])
    with connect(served.url) as other, other.subscribe("n < 0", name="kept") as again:
        assert values(again.notifications(count=2, timeout_s=WAIT_S)) == [1, -1]
    with pytest.raises(InvalidValue, match="expected a value"):
        subscription.update("n <")
    with client.subscribe("n > 0") as temporary:
        temporary.update("n > 5")
        client.publish_many([{"n": 1}, {"n": 6}])
        assert values(temporary.notifications(count=1, timeout_s=WAIT_S)) == [6]
    client.unsubscribe("kept")
    with pytest.raises(UnknownSubscription):
        subscription.update("n > 0")


def test_a_client_that_closes_ends_its_nameless_subscriptions(client: Client, served: Served) -> None:
    with connect(served.url) as other:
        other.subscribe("n > 0")
        listening = other.subscribe("n > 1", handler=lambda notification: None)
        assert len(list(client.subscriptions())) == 2
    listening.join()
    assert list(client.subscriptions()) == []


def test_subscriptions_may_share_a_queue_which_may_hold_other_messages(client: Client) -> None:
    queue = client.create_queue("shared")
    client.subscribe("n > 0", name="one", queue="shared")
    queue.send(b"\xffno publication")
    with client.subscribe("m > 0", queue="shared") as two:
        client.publish({"n": 1})
        client.publish({"m": 1})
        found = list(two.notifications(count=3, timeout_s=WAIT_S))
    assert [(each.attributes, each.payload) for each in found] == [
        ({}, b"\xffno publication"),
        ({"n": 1}, None),
        ({"m": 1}, None),
    ]
    assert list(client.queues()) == ["shared"]


def test_there_may_be_an_end_to_waiting(client: Client) -> None:
    with client.subscribe("n > 0") as quiet:
        assert list(quiet.notifications(timeout_s=0)) == []
        assert list(quiet.notifications(timeout_s=0.05)) == []
        assert quiet.run(print, timeout_s=0.05, workers=2) == 0
        client.publish_many([{"n": 1}, {"n": 2}])
        assert values(quiet.notifications(count=1)) == [1]
        assert quiet.run(lambda notification: None, count=1, workers=3, timeout_s=WAIT_S) == 1


def test_a_queue_that_goes_away_is_told(client: Client) -> None:
    subscription = client.subscribe("n > 0", name="doomed")
    assert list(subscription.notifications(timeout_s=0.05)) == []
    client.unsubscribe("doomed")
    with pytest.raises(UnknownQueue):
        list(subscription.notifications(timeout_s=WAIT_S))
    subscription.close()


def test_what_a_webhook_gets_is_not_for_programs(client: Client) -> None:
    with pytest.raises(InvalidValue, match="give it a name"):
        client.subscribe("n > 0", webhook="http://127.0.0.1:1/")
    hooked = client.subscribe("n > 0", name="hooked", webhook="http://127.0.0.1:1/")
    assert hooked.state.webhook is not None
    with pytest.raises(InvalidValue, match="go to http"):
        next(iter(hooked))


@pytest.mark.parametrize("options", [{"prefetch": 0}, {"prefetch": 1001}, {"visibility_s": 0.5}, {"visibility_s": 1e6}])
def test_settings_that_cannot_work_are_refused(client: Client, options: dict[str, float]) -> None:
    client.subscribe("n > 0", name="s")
    with pytest.raises(InvalidValue, match=next(iter(options))):
        client.subscription("s", **options)  # type: ignore[arg-type]


def test_advertisements_come_and_go(client: Client) -> None:
    assert client.advertise("price > 0", name="quotes").filter == "price > 0"
    client.advertise("n > 0")
    assert "quotes" in [each.name for each in client.advertisements()]
    for each in list(client.advertisements()):
        client.unadvertise(each.name)
    assert list(client.advertisements()) == []


# ── acknowledgements ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_notification_is_acknowledged_when_the_next_is_asked_for(client: Client) -> None:
    client.publish({"n": 0})
    with client.subscribe("n > 0", name="s") as subscription:
        client.publish_many([{"n": 1}, {"n": 2}])
        numbers = iter(subscription)
        next(numbers)
        subscription.flush()
        assert waiting(client, "s") == (0, 2)
        next(numbers)
        subscription.flush()
        assert waiting(client, "s") == (0, 1)
    assert waiting(client, "s") == (0, 0), "leaving in good order is an acknowledgement too"


def test_a_notification_that_raises_comes_again(client: Client) -> None:
    def work() -> None:
        with client.subscription("s") as subscription:
            for notification in subscription:
                raise RuntimeError(notification.id)

    client.subscribe("n >= 0", name="s")
    client.publish({"n": 0})
    with pytest.raises(RuntimeError):
        work()
    with client.subscription("s") as subscription:
        [again] = subscription.notifications(count=1, timeout_s=WAIT_S)
        assert (again.attributes["n"], again.attempt) == (0, 2)
    assert waiting(client, "s") == (0, 0)


def test_what_is_said_about_a_notification_counts(client: Client) -> None:
    with client.subscribe("n > 0", name="s") as subscription:
        client.publish({"n": 1})
        seen = []
        for notification in subscription.notifications(count=3, timeout_s=WAIT_S):
            seen.append(notification.attempt)
            if notification.attempt < 3:
                notification.retry()
        assert seen == [1, 2, 3]
        subscription.flush()
        assert waiting(client, "s") == (0, 0)
        with pytest.raises(InvalidValue, match="after_s"):
            notification.retry(-1)


def test_what_was_received_ahead_is_given_back(client: Client) -> None:
    with client.subscribe("n >= 0", name="s") as first:
        client.publish_many({"n": n} for n in range(300))
        assert values(first.notifications(count=10)) == list(range(10))
    with client.subscription("s") as second:
        assert sorted(values(second.notifications(count=290, timeout_s=5))) == list(range(10, 300))  # type: ignore[type-var]


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_handlers_work_beside_each_other(client: Client) -> None:
    together = threading.Barrier(3)
    names = set()

    def handle(notification: Notification) -> None:
        together.wait(WAIT_S)
        names.add(threading.current_thread().name)

    with client.subscribe("n >= 0") as subscription:
        client.publish_many({"n": n} for n in range(6))
        assert subscription.run(handle, workers=3, count=6) == 6
    assert len(names) == 3


def test_a_handler_in_the_background_ends_with_its_subscription(client: Client) -> None:
    seen = threading.Semaphore(0)
    subscription = client.subscribe("n > 0", handler=lambda notification: seen.release(), workers=2)
    client.publish_many([{"n": 1}, {"n": 2}])
    assert seen.acquire(timeout=WAIT_S)
    assert seen.acquire(timeout=WAIT_S)
    with pytest.raises(InvalidValue, match="a handler already"):
        subscription.start(print)
    subscription.close()
    subscription.join()


def test_workers_that_begin_when_their_subscription_is_closed_already_end_in_good_order(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(self: Subscription, *arguments: Any) -> None:
        while not self._is_closed:
            time.sleep(0.01)
        work(self, *arguments)

    work = Subscription._work
    monkeypatch.setattr(Subscription, "_work", late)
    subscription = client.subscribe("n > 0", handler=print, workers=2)
    subscription.close()
    subscription.join()


def test_a_handler_that_fails_too_often_leaves_a_dead_letter(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.create_queue("dead")
    config = QueueConfig(dead_letters="dead", receives_max=2)
    attempts = []

    def handle(notification: Notification) -> None:
        attempts.append(notification.attempt)
        raise RuntimeError("no luck")

    with client.subscribe("n > 0", name="s", config=config) as subscription:
        client.publish({"n": 1})
        subscription.run(handle, count=2)
        subscription.flush()
        assert attempts == [1, 2]
        assert "(attempt 1); it comes again in 1 s" in caplog.text
        assert "(attempt 2); this was the last attempt, it goes to the dead-letter queue dead" in caplog.text
        assert "no luck" in caplog.text
        deadline_s = time.monotonic() + WAIT_S
        while not (dead := client.queue("dead").peek()):
            assert list(subscription.notifications(timeout_s=0.2)) == []
            assert time.monotonic() < deadline_s
    assert b'"n":1' in dead[0].body


def test_a_lease_lasts_as_long_as_the_work(client: Client) -> None:
    with (
        client.subscribe("n > 0", name="s", visibility_s=1, prefetch=2) as worker,
        client.subscription("s", visibility_s=1) as rival,
    ):
        client.publish_many([{"n": 1}, {"n": 2}, {"n": 3}])
        numbers = iter(worker)
        next(numbers)
        assert values(rival.notifications(timeout_s=2.2)) in ([], [3]), "what was received ahead is leased too"
        assert next(numbers).attempt == 1
        worker.flush()
        assert waiting(client, "s")[0] == 0
