"""The waiting room: first come, first served; nobody waits too long, and nobody is remembered who is gone."""

from __future__ import annotations

import pytest

from lavant.broker.machine.long_polls import STALE_MIN, LongPolls, RequestContext
from lavant.broker.protocol.queues import Receive
from lavant.core.errors import LimitExceeded


def add(room: LongPolls, client: str, number: int = 0, *, queue: str = "orders", deadline_ms: int = 1000) -> None:
    room.add(RequestContext(client, number, None), Receive(queue), deadline_ms=deadline_ms)


def serve(room: LongPolls, queue: str = "orders") -> str:
    waiting = room.first(queue)
    assert waiting is not None
    room.remove(waiting)
    return str(waiting.context.client)


def test_who_came_first_is_first_whatever_the_deadlines() -> None:
    room = LongPolls()
    add(room, "ann", deadline_ms=900)
    add(room, "bob", deadline_ms=100)
    add(room, "cid", deadline_ms=500)
    assert [serve(room) for _ in range(3)] == ["ann", "bob", "cid"]
    assert room.first("orders") is None


def test_queues_have_lines_of_their_own() -> None:
    room = LongPolls()
    add(room, "ann", queue="orders")
    add(room, "bob", queue="bills")
    assert room.queues() == ["orders", "bills"]
    assert serve(room, "bills") == "bob"
    assert room.queues() == ["orders"]


def test_time_is_up_at_the_deadline_and_not_before() -> None:
    room = LongPolls()
    add(room, "ann", deadline_ms=300)
    add(room, "bob", deadline_ms=200)
    add(room, "cid", deadline_ms=200)
    assert room.wakeup_ms() == 200
    assert room.expired(199) == []
    assert [waiting.context.client for waiting in room.expired(200)] == ["bob", "cid"]
    assert (room.wakeup_ms(), len(room), serve(room)) == (300, 1, "ann")


def test_who_was_served_does_not_expire() -> None:
    room = LongPolls()
    add(room, "ann", deadline_ms=100)
    add(room, "bob", deadline_ms=200)
    serve(room)
    assert room.wakeup_ms() == 200
    assert [waiting.context.client for waiting in room.expired(1000)] == ["bob"]


def test_all_that_a_client_waits_for_is_forgotten_and_nothing_else() -> None:
    room = LongPolls()
    for number in range(3):
        add(room, "ann", number)
        add(room, "ann", number, queue="bills")
        add(room, "bob", number)
    room.forget("ann")
    assert (len(room), room.count("ann"), room.count("bob")) == (3, 0, 3)
    assert room.first("bills") is None
    assert [serve(room) for _ in range(3)] == ["bob"] * 3
    assert room.expired(10_000) == []


def test_who_is_not_known_can_be_forgotten() -> None:
    LongPolls().forget("nobody")


def test_the_room_is_bounded_and_says_so() -> None:
    room = LongPolls(size_max=2)
    add(room, "ann")
    add(room, "bob")
    with pytest.raises(LimitExceeded, match="2 receives wait for a message already"):
        add(room, "cid")
    room.forget("ann")
    add(room, "cid")
    assert [serve(room), serve(room)] == ["bob", "cid"]


def test_everybody_can_be_sent_home() -> None:
    room = LongPolls()
    add(room, "ann", deadline_ms=900)
    add(room, "bob", deadline_ms=100)
    assert [waiting.context.client for waiting in room.take_all()] == ["bob", "ann"]
    assert (len(room), room.take_all()) == (0, [])


def test_deadlines_of_those_who_left_do_not_pile_up() -> None:
    room = LongPolls()
    for _ in range(10 * STALE_MIN):
        add(room, "ann", deadline_ms=20_000)
        serve(room)
    assert len(room._deadlines) <= STALE_MIN + 1
