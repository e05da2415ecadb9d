"""Notifications: what they hold, and what is said about them."""

from __future__ import annotations

import pytest

from lavant.broker.protocol.queues import Delivery, Receipt
from lavant.client.consumers.quota import ReceiveQuota
from lavant.client.subscriptions.notification import Notification, notification_of
from lavant.core.errors import InvalidValue


def read(body: bytes, told: list[int | None] | None = None) -> Notification:
    delivery = Delivery(Receipt(7, 9), body, b"", 5, 6, 2, "", "")
    heard: list[int | None] = [] if told is None else told
    return notification_of(delivery, None, lambda retry_ms, reason: heard.append(retry_ms))


def test_a_publication_is_read_as_it_was_published() -> None:
    found = read(b'{"a":1,"b":"x","@id":"i","@time_ms":3,"@payload":"AP8="}')
    assert (found.attributes, found.id, found.time_s, found.payload) == ({"a": 1, "b": "x"}, "i", 0.003, b"\x00\xff")
    assert found.attempt == 2


@pytest.mark.parametrize("body", [b"", b"\xff", b"[1]", b'"x"', b'{"a":', b'{"@payload": 7}', b'{"@payload": "?"}'])
def test_a_message_that_is_no_publication_is_all_payload(body: bytes) -> None:
    found = read(body)
    assert (found.attributes, found.id, found.time_s, found.payload) == ({}, "7", 0.005, body)


@pytest.mark.parametrize("time", [b'"soon"', b"null", b"[]"])
def test_a_message_with_a_time_that_is_none_has_the_time_at_which_it_was_sent(time: bytes) -> None:
    assert read(b'{"a":1,"@time_ms":%b}' % time).time_s == 0.005


def test_only_what_is_said_first_counts() -> None:
    told: list[int | None] = []
    acknowledged = read(b"{}", told)
    acknowledged.acknowledge()
    acknowledged.retry(5)
    again = read(b"{}", told)
    again.retry(1.5)
    again.acknowledge()
    assert told == [None, 1500]


@pytest.mark.parametrize("after_s", [-1, 50_000])
def test_a_pause_out_of_bounds_is_refused(after_s: float) -> None:
    with pytest.raises(InvalidValue, match=f"got {after_s}"):
        read(b"{}").retry(after_s)


@pytest.mark.parametrize(("count", "timeout_s"), [(0, None), (-1, None), (None, -1)])
def test_bad_limits_are_refused(count: int | None, timeout_s: float | None) -> None:
    with pytest.raises(InvalidValue, match="leave it out"):
        ReceiveQuota(count, timeout_s)


def test_what_was_claimed_in_vain_is_given_back() -> None:
    now_s = [10.0]
    quota = ReceiveQuota(1, 5, lambda: now_s[0])
    assert quota.claim()
    assert not quota.claim()
    quota.give_back()
    assert quota.claim()
    now_s[0] = 14.0
    assert quota.left_s() == 1.0
    now_s[0] = 16.0
    assert quota.left_s() == 0.0
