"""Receiving: who gets what, for how long, and how often."""

from __future__ import annotations

import pytest
from tests.unit.broker.queues.hubs import Q, bodies, hub_with, receipts

from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, VISIBILITY_MS_MAX
from lavant.broker.protocol.queues import Receive
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, TooManyInFlight, UnknownQueue


def test_a_message_is_hidden_from_others_while_its_lease_lasts() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a")
    assert bodies(hub.receive(now_ms=10)) == [b"a"]
    assert hub.receive(now_ms=109) == []
    assert hub.wakeup_ms() == 110
    (again,) = hub.receive(now_ms=110)
    assert (again.body, again.receive_count, again.first_received_ms, again.sent_ms) == (b"a", 2, 10, 0)
    assert hub.figures().returned == 1


def test_a_receive_can_say_for_how_long() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a")
    hub.receive(visibility_ms=5)
    assert bodies(hub.receive(now_ms=5, visibility_ms=VISIBILITY_MS_MAX)) == [b"a"]
    assert hub.receive(now_ms=5 + VISIBILITY_MS_MAX - 1) == []


def test_a_receive_for_no_time_at_all_leaves_the_message_to_others() -> None:
    hub = hub_with()
    hub.send(b"a", b"b")
    assert bodies(hub.receive(2, visibility_ms=0)) == [b"a", b"b"]
    assert hub.states() == (2, 0, 0)
    assert [delivery.receive_count for delivery in hub.receive(2)] == [2, 2]
    assert hub.figures().returned == 2


def test_every_delivery_has_a_lease_of_its_own() -> None:
    hub = hub_with()
    hub.send(b"a", b"b", b"c")
    given = receipts(hub.receive(2)) + receipts(hub.receive(1)) + receipts(hub.receive(3, now_ms=30_000))
    leases = [receipt.lease for receipt in given]
    assert leases == sorted(set(leases))
    assert leases[0] == (1 << 40) + 1


def test_what_returns_goes_to_the_end_of_an_out_of_order_line() -> None:
    hub = hub_with(visibility_ms=100)
    hub.send(b"a", b"b", b"c")
    hub.receive(2)
    hub.send(b"d", now_ms=100)
    assert bodies(hub.receive(5)) == [b"c", b"a", b"b", b"d"]


def test_no_more_is_delivered_than_is_asked_for_or_there() -> None:
    hub = hub_with()
    hub.send(*[bytes([n]) for n in range(5)])
    assert [len(hub.receive(3)) for _ in range(3)] == [3, 2, 0]


def test_an_empty_receive_changes_nothing() -> None:
    hub = hub_with()
    assert hub.receive() == []
    assert not hub.changed


def test_an_answer_is_no_larger_than_a_batch_may_be() -> None:
    hub = hub_with()
    for _ in range(18):
        hub.send(bytes(MESSAGE_BYTES_MAX))
    assert len(hub.receive(18)) == BATCH_BYTES_MAX // MESSAGE_BYTES_MAX == 16
    assert len(hub.receive(18)) == 2


def test_only_so_many_may_be_in_flight() -> None:
    hub = hub_with(in_flight_max=3)
    hub.send(*[b""] * 5)
    first = hub.receive(2)
    assert len(hub.receive(2)) == 1
    assert not hub.visible(Q, 0)
    with pytest.raises(TooManyInFlight, match="3 messages of queue 'orders' are in flight"):
        hub.receive()
    hub.acknowledge(first[0].receipt)
    assert hub.visible(Q, 0)
    assert len(hub.receive(2)) == 1


def test_a_queue_that_has_nothing_visible_is_empty_even_if_no_more_may_be_in_flight() -> None:
    hub = hub_with(in_flight_max=1)
    hub.send(b"a")
    hub.receive()
    assert hub.receive() == []


def test_the_hub_says_whether_a_receive_would_find_something() -> None:
    hub = hub_with(visibility_ms=100)
    assert not hub.visible(Q, 0)
    hub.send(b"a", delay_ms=50)
    assert not hub.visible(Q, 49)
    assert hub.visible(Q, 50)
    hub.receive()
    assert not hub.visible(Q, 149)
    assert hub.visible(Q, 150)
    with pytest.raises(UnknownQueue):
        hub.visible("nobody", 150)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Receive("nobody"), UnknownQueue),
        (Receive(Q, 0), InvalidValue),
        (Receive(Q, 1001), LimitExceeded),
        (Receive(Q, visibility_ms=-1), InvalidValue),
        (Receive(Q, visibility_ms=VISIBILITY_MS_MAX + 1), LimitExceeded),
        (Receive(Q, wait_ms=-1), InvalidValue),
        (Receive(Q, wait_ms=20_001), LimitExceeded),
    ],
)
def test_a_receive_is_refused(request_: Receive, error: type[LavantError]) -> None:
    hub = hub_with()
    hub.send(b"a")
    with pytest.raises(error):
        hub.handle(request_, 0)
    assert hub.states() == (1, 0, 0)


def test_a_consumer_learns_all_about_a_message() -> None:
    hub = hub_with("in-order", order="in-order")
    hub.send(b"body", queue="in-order", now_ms=5, attributes=b"attributes", group="g", deduplication="d")
    (delivery,) = hub.receive(queue="in-order", now_ms=7)
    assert (delivery.body, delivery.attributes, delivery.group, delivery.deduplication) == (
        b"body",
        b"attributes",
        "g",
        "d",
    )
    assert (delivery.sent_ms, delivery.first_received_ms, delivery.receive_count) == (5, 7, 1)
    assert (delivery.receipt.number, delivery.origin) == (1, None)
