"""Calls: what is asked, how answers are read, and what may be asked twice."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from lavant.broker.protocol import queues as protocol
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Done,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    Sent,
    SentEntry,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.client import queue_calls as calls
from lavant.client.connection.calls import Call
from lavant.client.queue_calls import NEW_QUEUE
from lavant.client.values.mirror import to_protocol
from lavant.client.values.queues import Delivery, SendEntry
from lavant.core.errors import (
    InvalidValue,
    LavantError,
    LimitExceeded,
    PartlyRefused,
    StaleReceipt,
    StorageFull,
    UnknownQueue,
)

DELIVERY = Delivery(
    Receipt(7, 9), b"body", b"", sent_s=1.5, first_received_s=2.0, receive_count=1, group="", deduplication=""
)


def test_messages_can_be_given_as_bytes_or_as_entries() -> None:
    call = calls.send_many("q", [b"one", SendEntry(b"two", delay_s=0.5)])
    assert call.request == Send("q", [protocol.SendEntry(b"one"), protocol.SendEntry(b"two", delay_ms=500)])
    assert call.read(Sent([SentEntry(4), SentEntry(5)])) == [4, 5]


def test_messages_are_acknowledged_by_themselves_or_by_their_receipts() -> None:
    assert calls.acknowledge("q", [DELIVERY, Receipt(8, 1)]).request == Acknowledge("q", [Receipt(7, 9), Receipt(8, 1)])


@pytest.mark.parametrize("kind", [InvalidValue, LimitExceeded, UnknownQueue, StorageFull, StaleReceipt])
def test_a_refusal_is_raised_as_the_error_it_names(kind: type[LavantError]) -> None:
    with pytest.raises(kind, match="what was wrong") as raised:
        calls.receive("q").read(Refused(kind.__name__, "what was wrong"))
    assert type(raised.value) is kind


def test_one_message_that_is_refused_raises_its_own_error() -> None:
    with pytest.raises(LimitExceeded, match="too large"):
        calls.send("q", SendEntry(b"")).read(Sent([Refused("LimitExceeded", "too large")]))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (calls.send_many("q", [b"1", b"2", b"3"]), Sent([Refused("QueueFull", "a"), SentEntry(1), Refused("X", "b")])),
        (
            calls.acknowledge("q", [DELIVERY]),
            Acknowledged({2: Refused("X", "b"), 0: Refused("QueueFull", "a")}),
        ),
        (
            calls.change_visibility("q", [DELIVERY], visibility_s=0),
            VisibilityChanged({0: Refused("QueueFull", "a"), 2: Refused("X", "b")}),
        ),
    ],
)
def test_a_batch_says_which_of_its_entries_were_refused(call: Call[Any], answer: Any) -> None:
    with pytest.raises(PartlyRefused, match=r"entry 0 of the batch was refused: a \(and 1 more") as raised:
        call.read(answer)
    assert list(raised.value.refused) == [0, 2]
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_answer_of_another_kind_is_a_mistake_of_the_server() -> None:
    with pytest.raises(TypeError, match="Receive was answered by Done, not Received"):
        calls.receive("q").read(Done())


def test_only_what_does_no_harm_twice_is_repeated() -> None:
    harmless: list[Call[Any]] = [
        calls.receive("q"),
        calls.acknowledge("q", [DELIVERY]),
        calls.change_visibility("q", [DELIVERY], visibility_s=0),
        calls.describe("q"),
        calls.create("q", NEW_QUEUE, {}),
        calls.peek("q", 1, 0),
        calls.list_queues("", "", 10),
    ]
    harmful: list[Call[Any]] = [
        calls.send("q", SendEntry(b"")),
        calls.send_many("q", [b""]),
        calls.purge("q"),
        calls.delete("q"),
        calls.redrive("q", None, None),
    ]
    assert all(call.is_repeatable for call in harmless)
    assert not any(call.is_repeatable for call in harmful)


def test_how_long_a_receive_may_take_is_known() -> None:
    assert calls.receive("q", wait_s=0.7).wait_ms == 700
    assert calls.receive("q").wait_ms == 20_000, "the queue's own, which may be up to this"
    assert calls.describe("q").wait_ms == 0
    assert calls.receive("q", wait_s=0).request == Receive("q", 1, None, 0)
    assert calls.receive("q", wait_s=0).read(Received([to_protocol(DELIVERY)])) == [DELIVERY]


def test_times_of_calls_are_in_seconds_and_checked() -> None:
    assert calls.receive("q", 5, visibility_s=1.5).request == Receive("q", 5, 1500, None)
    hiding = calls.change_visibility("q", [Receipt(7, 9)], visibility_s=0.25, reason="busy").request
    assert hiding == ChangeVisibility("q", [VisibilityChange(Receipt(7, 9), 250, "busy")])
    for call in (
        lambda: calls.receive("q", visibility_s=43_201),
        lambda: calls.change_visibility("q", [], visibility_s=-1),
    ):
        with pytest.raises(InvalidValue, match="visibility_s must be between 0 and 43200, got"):
            call()
    with pytest.raises(LimitExceeded, match="wait_s must be between 0 and 20, got 21"):
        calls.receive("q", wait_s=21)
