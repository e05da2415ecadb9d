"""What links need at both ends: queues with a timestamp vector, replay buffers, routes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.slices.links import BURST, RESEND_MS, RESEND_MS_MAX, WINDOW, Inbox, Item, Outlet
from lavant.broker.slices.migration.messages import Route
from lavant.broker.slices.migration.route_announcements import SliceRoutes
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId

UP, DOWN = SliceId("AP:0"), SliceId("M:0")


@given(st.lists(st.integers(1, 20), max_size=60))
def test_an_inbox_gives_each_number_once_and_in_order_as_far_as_there_is_no_gap(numbers: list[int]) -> None:
    inbox: Inbox[int] = Inbox()
    taken: list[int] = []
    for number in numbers:
        inbox.put(UP, number, number)
        while (item := inbox.take(UP)) is not None:
            taken.append(item[1])
    whole = next(n for n in range(1, 22) if n not in numbers) - 1
    assert taken == list(range(1, whole + 1))
    assert len(inbox) == len({number for number in numbers if number > whole})


def test_an_inbox_that_is_not_taken_from_keeps_the_newest() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(1, WINDOW + 3):
        inbox.put(UP, number, number)
    assert sorted(number for _, number, _ in inbox.items()) == list(range(3, WINDOW + 3))
    inbox.advance({UP: WINDOW})
    assert inbox.take(UP) == (WINDOW + 1, WINDOW + 1)


def outlet_with(count: int) -> Outlet:
    outlet = Outlet()
    for number in range(1, count + 1):
        outlet.keep(Item(DOWN, number, b""), 0)
    return outlet


def test_an_outlet_sends_the_oldest_again_ever_more_rarely_until_they_are_acknowledged() -> None:
    outlet = outlet_with(BURST + 5)
    assert list(outlet.resend(RESEND_MS - 1)) == []
    times, now_ms = [], 0
    for _ in range(8):
        now_ms = outlet.wakeup_ms() or 0
        times.append(now_ms)
        assert [item.sequence for item in outlet.resend(now_ms)] == list(range(1, BURST + 1))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == RESEND_MS_MAX
    outlet.acknowledge(DOWN, 3, now_ms)
    assert outlet.wakeup_ms() == now_ms + RESEND_MS
    outlet.acknowledge(DOWN, BURST + 5, now_ms)
    assert (outlet.wakeup_ms(), outlet.room) == (None, WINDOW)


def test_an_outlet_is_bounded_by_its_fullest_link() -> None:
    outlet = outlet_with(WINDOW)
    outlet.keep(Item(SliceId("M:1"), 1, b""), 0)
    assert outlet.room == 0
    with pytest.raises(AssertionError):
        outlet.keep(Item(DOWN, WINDOW + 1, b""), 0)


def test_an_old_acknowledgement_changes_nothing() -> None:
    outlet = outlet_with(3)
    outlet.acknowledge(DOWN, 2, 0)
    outlet.acknowledge(DOWN, 1, 0)
    assert [item.sequence for item in outlet.save()] == [3]


def test_a_late_route_changes_nothing() -> None:
    routes = SliceRoutes({DOWN: HostId("a")})
    routes.take(Route(3, DOWN, (HostId("b"),)))
    routes.take(Route(2, DOWN, (HostId("a"), HostId("b"))))
    assert routes.hosts(DOWN) == ("b",)
    with pytest.raises(InvalidValue, match="the location of"):
        routes.hosts(UP)
