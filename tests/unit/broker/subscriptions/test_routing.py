"""From subscriptions to queues, against the obvious way of doing it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching.interface import Matches
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.routing import FanOutBatch, QueueRoutes

LISTS = st.lists(st.lists(st.integers(0, 40), unique=True, max_size=12), max_size=12)


def matches_of(lists: list[list[int]]) -> Matches:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return Matches(offsets, np.array([id for each in lists for id in each], np.uint32))


def shares_of(batch: FanOutBatch) -> dict[int, list[int]]:
    """Which publications of the whole batch each queue gets."""
    queues, ends, places = (np.frombuffer(data, INTEGERS) for data in (batch.queues, batch.ends, batch.places))
    starts = [0, *ends.tolist()][: len(queues)]
    return {
        int(queue): [batch.start + int(place) for place in places[start:end]]
        for queue, start, end in zip(queues, starts, ends.tolist(), strict=True)
    }


def joined(batches: list[FanOutBatch]) -> dict[int, list[int]]:
    whole: dict[int, list[int]] = {}
    for batch in batches:
        for queue, own in shares_of(batch).items():
            whole.setdefault(queue, []).extend(own)
    return whole


@given(lists=LISTS, queues=st.dictionaries(st.integers(0, 40), st.integers(100, 110)), pairs_max=st.integers(1, 30))
def test_every_queue_gets_what_one_of_its_subscriptions_matches_once_and_in_order(
    lists: list[list[int]], queues: dict[int, int], pairs_max: int
) -> None:
    routes = QueueRoutes()
    for subscription, queue in queues.items():
        routes.add(subscription, queue)
    batches = list(routes.fan_out(matches_of(lists), pairs_max))
    expected: dict[int, list[int]] = {}
    for place, ids in enumerate(lists):
        for queue in {queues[id] for id in ids if id in queues}:
            expected.setdefault(queue, []).append(place)
    assert joined(batches) == expected
    assert [batch.start for batch in batches] == [0, *(batch.stop for batch in batches)][: len(batches)]
    assert sum(batch.stop - batch.start for batch in batches) == len(lists)
    wanted = [bool(each) for batch in batches for each in batch.wanted]
    assert wanted == [any(id in queues for id in ids) for ids in lists]
    for batch in batches:
        assert len(batch.places) // 4 <= pairs_max + len(queues)
        for number in range(batch.stop - batch.start):
            alone = shares_of(batch.only(number))
            place = batch.start + number
            assert alone == {queue: [number] for queue, own in shares_of(batch).items() if place in own}


@given(
    steps=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 200)), max_size=60),
    leaving=st.sets(st.integers(0, 59)),
)
def test_who_comes_and_goes_is_forgotten(steps: list[tuple[int, int]], leaving: set[int]) -> None:
    routes, there = QueueRoutes(), dict[int, int]()
    for number, (subscription, queue) in enumerate(steps):
        if subscription in there:
            routes.remove(subscription)
            del there[subscription]
        routes.add(subscription, queue)
        there[subscription] = queue
        if number in leaving:
            routes.remove(subscription)
            del there[subscription]
    assert len(routes) == len(set(there.values()))
    matches = matches_of([sorted({subscription for subscription, _ in steps})])
    assert joined(list(routes.fan_out(matches))) == {queue: [0] for queue in there.values()}


def test_nothing_is_for_nobody() -> None:
    nothing = FanOutBatch.nothing(3)
    assert (nothing.stop, shares_of(nothing), nothing.wanted.tolist()) == (3, {}, [False] * 3)


FAR = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(FAR, st.booleans()), max_size=30))
def test_numbers_that_are_far_apart_take_little_memory_and_go_where_they_should(steps: list[tuple[int, bool]]) -> None:
    routes, there = QueueRoutes(), dict[int, int]()
    for number, stays in steps:
        if number not in there:
            routes.add(number, 100 + number % 7)
            there[number] = 100 + number % 7
        if not stays:
            routes.remove(number)
            del there[number]
    asked = [[number] for number, _ in steps]
    expected: dict[int, list[int]] = {}
    for place, (number, _) in enumerate(steps):
        if number in there:
            expected.setdefault(there[number], []).append(place)
    assert joined(list(routes.fan_out(matches_of(asked)))) == expected


def test_memory_is_that_of_the_subscriptions_that_are_there() -> None:
    routes = QueueRoutes()
    for number in range(1_000_000, 1_100_000):
        routes.add(number, 7)
        routes.remove(number)
    routes.add(1_100_000, 7)
    assert routes._pages.nbytes + routes._page_of.nbytes < 40_000
