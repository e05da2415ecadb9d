"""The local engine: what it finds does not depend on how many slices share the work, and warming up works."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lavant.broker.filters import parse
from lavant.broker.queues.spreading import INTEGERS
from lavant.broker.subscriptions.accepting import Accepted
from lavant.broker.subscriptions.commands import SubscriptionState
from lavant.broker.subscriptions.registry import Added, Removed
from lavant.core.errors import InvalidValue
from lavant.service.engines.interface import Batch
from lavant.service.engines.local import LocalEngine, _layouts, _warm_up


def subscription(number: int, filter: str) -> SubscriptionState:
    return SubscriptionState(number, f"s{number}", "", filter, f"s{number}", True, None, 0)


def found(engine: LocalEngine, rows: list[dict[str, int]]) -> list[set[int]]:
    """Which queues get each publication."""
    publications = [Accepted(str(place), "plain", row, b"") for place, row in enumerate(rows)]
    queues: list[set[int]] = [set() for _ in rows]
    for piece in engine.publish(Batch(namespace="", scheme="plain", publications=publications)):
        numbers, ends, places = (np.frombuffer(data, INTEGERS).tolist() for data in piece[2:5])
        for number, start, end in zip(numbers, [0, *ends], ends, strict=False):
            for place in places[start:end]:
                queues[piece.start + place].add(number)
    return queues


@pytest.mark.parametrize("slices", [1, 2, 3])
@pytest.mark.parametrize("count", [5, 200])
def test_what_is_found_is_what_the_filters_say(slices: int, count: int) -> None:
    filters = {number: f"a > {number % 7} and b < {number % 5}" for number in range(1, 60)}
    engine = LocalEngine(slices=slices)
    engine.change([Added(subscription(number, text), 100 + number) for number, text in filters.items()], {})
    engine.change([Removed(subscription(number, filters.pop(number))) for number in (3, 17)], {})
    rows = [{"a": place % 9, "b": place % 4} for place in range(count)]
    expected = [{100 + number for number, text in filters.items() if parse(text).matches(row)} for row in rows]
    assert found(engine, rows) == expected
    engine.close()


def test_a_filter_that_cannot_be_matched_is_refused_before_it_counts() -> None:
    engine = LocalEngine(slices=1)
    with pytest.raises(InvalidValue):
        engine.prepare("", "a >")
    assert found(engine, [{"a": 1}]) == [set()]
    engine.close()


def test_indexes_are_joined_while_nothing_changes() -> None:
    engine = LocalEngine(slices=2, quiet_s=0.2)
    texts = {number: f"a = {number}" for number in range(1, 40)}
    added = [Added(subscription(number, text), number) for number, text in texts.items()]
    for some in (added[:20], added[20:]):
        engine.change(some, {})
    slices = list(engine._namespace("")._slices["plain"]._match_slices())

    def segments() -> int:
        assert found(engine, [{"a": number} for number in texts]) == [{number} for number in texts]
        return max(each.statistics()["plain"].segments for each in slices)

    deadline_s = time.monotonic() + 60
    while segments() > 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)  # or the two would fight over the interpreter
    engine.close()


def test_warming_up_touches_everything_that_matching_needs() -> None:
    with ThreadPoolExecutor(1) as threads:
        _warm_up(_layouts(2), threads)
