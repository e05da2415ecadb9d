"""Subscriptions that move between brokers, as real processes: clients follow, nothing is lost, nothing comes twice."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.federations import Broker, wait_for_members, wait_for_subscriptions
from tests.integration.serving import WAIT_S_MAX
from tests.integration.talking_http import Events, websocket
from websockets.exceptions import ConnectionClosed

import lavant
from lavant.broker.protocol.federation import MoveSubscription, SubscriptionMigrated
from lavant.broker.protocol.queues import Receive, Received, Refused


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[list[Broker]]:
    """Three brokers in a chain that know each other."""
    brokers = [Broker(tmp_path, "B1")]
    brokers.append(Broker(tmp_path, "B2", brokers[0]))
    brokers.append(Broker(tmp_path, "B3", brokers[1]))
    try:
        until(lambda: all(len(each.view()["members"]) == 3 for each in brokers))
        yield brokers
    finally:
        for each in brokers:
            each.kill()


def until(is_true: object) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def move(broker: Broker, name: str, target: str) -> SubscriptionMigrated | Refused:
    with broker.client() as client:
        answer = client.ask(MoveSubscription(name, target))
        assert isinstance(answer, SubscriptionMigrated | Refused)
        return answer


def suppressed_move(broker: Broker, name: str, target: str) -> None:
    with contextlib.suppress(OSError, AssertionError):
        move(broker, name, target)


def places(*brokers: Broker) -> list[str]:
    """Where the only subscription can be moved from: nothing is on its way."""
    found = []
    for each in brokers:
        with each.served.http("/federation/subscriptions") as response:
            found += [each.name for state in json.load(response)["subscriptions"] if state["is_movable"]]
    return found


class Publisher(threading.Thread):
    """Publishes numbers one after the other, and remembers those that were accepted."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.accepted: list[int] = []
        self.is_stopped = False
        self._broker = broker

    def run(self) -> None:
        with lavant.connect(self._broker.url) as client:
            number = 0
            while not self.is_stopped:
                number += 1
                client.publish({"x": number})
                self.accepted.append(number)
                time.sleep(0.002)


@pytest.mark.soak
def test_a_broker_that_is_behind_hands_over_when_it_has_worked_off_its_backlog(tmp_path: Path) -> None:
    fast = Broker(tmp_path, "B1")
    slow = Broker(tmp_path, "B2", fast, options=("--matching-rate", "10"))
    try:
        wait_for_members(fast, slow)
        slow.subscribe("x > 0", "s")
        wait_for_subscriptions(fast, "B2", 1)
        with lavant.connect(fast.url) as client:
            client.publish_many([{"x": number} for number in range(1, 41)])
        assert slow.depth("s") < 40, "it is not behind"
        answer = move(slow, "s", "B1")
        assert isinstance(answer, SubscriptionMigrated), answer
        assert fast.depth("s") == 40, "what was published before the move has come with it"
        fast.publish({"x": 41})
        until(lambda: fast.depth("s") == 41)
        with fast.client() as frames:
            assert sorted(json.loads(body)["x"] for body in frames.drain("s")) == list(range(1, 42))
    finally:
        for each in (slow, fast):
            each.kill()


def test_a_subscriber_follows_its_subscription_and_gets_each_publication_once(chain: list[Broker]) -> None:
    one, _, three = chain
    got: Counter[int] = Counter()
    with lavant.connect(one.url) as client:
        subscription = client.subscribe("x > 0", name="s")
        until(lambda: three.link("B2")["subscriptions"] == 1)
        publisher = Publisher(three)
        publisher.start()
        places = [(one, "B3"), (three, "B2"), (chain[1], "B1")]
        try:
            for place, target in places:
                for notification in subscription.notifications(count=200, timeout_s=WAIT_S_MAX):
                    got[int(notification.attributes["x"])] += 1
                answer = move(place, "s", target)
                assert isinstance(answer, SubscriptionMigrated), answer
        finally:
            publisher.is_stopped = True
            publisher.join()
        missing = len(publisher.accepted) - sum(got.values())
        for notification in subscription.notifications(count=missing, timeout_s=WAIT_S_MAX):
            got[int(notification.attributes["x"])] += 1
        assert not list(subscription.notifications(timeout_s=0.3))
    assert got == Counter(publisher.accepted)


def test_a_move_survives_kill_9_of_both_brokers(chain: list[Broker]) -> None:
    one, two, _ = chain
    one.subscribe("x > 0", "s")
    ids = [id for number in range(300) for id in one.publish({"x": number + 1}).entries]
    for victim in (one, two):
        asking = threading.Thread(target=suppressed_move, args=(one, "s", "B2"))
        asking.start()
        time.sleep(0.01)
        victim.kill()
        asking.join()
        victim.start()
        until(lambda: one.link("B2")["state"] == "up" and two.link("B1")["state"] == "up")
        until(lambda: places(one, two) in (["B1"], ["B2"]))
        if places(one, two) == ["B2"]:
            answer = move(two, "s", "B1")
            assert isinstance(answer, SubscriptionMigrated), answer
    assert one.received("s") == Counter(ids)


def test_plain_clients_are_told_where_a_subscription_is(chain: list[Broker]) -> None:
    one, two, _ = chain
    one.subscribe("x > 0", "s")
    one.publish({"x": 1})
    answer = move(one, "s", "B2")
    assert isinstance(answer, SubscriptionMigrated), answer
    assert answer.address == two.url
    with one.client() as client:
        refused = client.ask(Receive("s"))
        assert isinstance(refused, Refused)
        assert (refused.code, refused.address) == ("SubscriptionMoved", two.url)
    with two.client() as client:
        received = client.ask(Receive("s", wait_ms=1_000))
        assert isinstance(received, Received)
        assert [json.loads(each.body)["x"] for each in received.deliveries] == [1]
    with pytest.raises(urllib.error.HTTPError) as moved:
        _NO_REDIRECTS.open(f"http://127.0.0.1:{one.port}/subscriptions/s")
    moved.value.close()
    assert moved.value.code == 307
    assert moved.value.headers["Location"] == f"http://127.0.0.1:{two.port}/subscriptions/s"
    with urllib.request.urlopen(f"http://127.0.0.1:{one.port}/subscriptions/s") as response:
        assert json.load(response)["name"] == "s"
    bad = move(one, "s", "B1")
    assert isinstance(bad, Refused)
    assert (bad.code, bad.address) == ("SubscriptionMoved", two.url)
    bad = move(one, "nothing", "B2")
    assert isinstance(bad, Refused)
    assert bad.code == "UnknownSubscription"
    bad = move(two, "s", "B9")
    assert isinstance(bad, Refused)
    assert "the others are: B1, B3" in bad.reason


def test_streams_end_with_the_address_at_which_they_go_on(chain: list[Broker]) -> None:
    one, two, _ = chain
    one.subscribe("x > 0", "s")
    with (
        Events(one.served, "/subscriptions/s/events") as events,
        websocket(one.served, "/subscriptions/s/stream") as stream,
        Events(one.served, "/events?filter=x = 7") as unnamed,
    ):
        with one.served.http("/federation/subscriptions") as response:
            [temporary] = {each["name"] for each in json.load(response)["subscriptions"]} - {"s"}
        for name in ("s", temporary):
            answer = move(one, name, "B2")
            assert isinstance(answer, SubscriptionMigrated), answer
        new = f"127.0.0.1:{two.port}/subscriptions"
        assert list(events) == [{"event": "end", "data": f"SubscriptionMoved http://{new}/s/events"}]
        with pytest.raises(ConnectionClosed) as closed:
            stream.recv(timeout=WAIT_S_MAX)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4307, f"ws://{new}/s/stream")
        assert list(unnamed) == [{"event": "end", "data": f"SubscriptionMoved http://{new}/{temporary}/events"}]
    asked = urllib.request.Request(
        f"http://127.0.0.1:{one.port}/subscriptions/s/events", headers={"Accept": "text/event-stream"}
    )
    with pytest.raises(urllib.error.HTTPError) as moved:
        _NO_REDIRECTS.open(asked)
    moved.value.close()
    assert moved.value.headers["Location"] == f"http://{new}/s/events"
    one.publish({"x": 5})
    with websocket(one.served, "/subscriptions/s/stream") as stream:  # follows the redirect
        assert json.loads(stream.recv(timeout=WAIT_S_MAX))["publication"]["x"] == 5


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object) -> None:
        return None


_NO_REDIRECTS = urllib.request.build_opener(_Unfollowed)
