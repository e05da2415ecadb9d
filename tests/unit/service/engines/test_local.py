"""The local engine: what it finds does not depend on how many slices share the work; the scan engine finds the same."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from lavant.broker.filters import parse
from lavant.broker.matching.plain import table
from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.subscriptions.parsing import ParsedPublication
from lavant.broker.subscriptions.registry import Added, Change, Removed
from lavant.service.engines.filters import change_batches
from lavant.service.engines.interface import Engine, EngineBatch
from lavant.service.engines.local import LocalEngine
from lavant.service.engines.scan import ScanEngine


def subscription(number: int, filter: str) -> SubscriptionState:
    return SubscriptionState(number, f"s{number}", "", filter, f"s{number}", True, None, 0)


def change(engine: Engine, changes: Sequence[Change]) -> None:
    engine.change(list(change_batches(changes, {})))


def found(engine: Engine, rows: list[dict[str, int]]) -> list[set[int]]:
    """Which queues get each publication."""
    publications = [ParsedPublication(str(place), "plain", row, b"") for place, row in enumerate(rows)]
    queues: list[set[int]] = [set() for _ in rows]
    pieces = engine.publish(EngineBatch(namespace="", scheme="plain", publications=publications))
    assert isinstance(pieces, list)
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    for piece in pieces:
        numbers, ends, places = (np.frombuffer(data, INTEGERS).tolist() for data in piece[2:5])
        for number, start, end in zip(numbers, [0, *ends], ends, strict=False):
            for place in places[start:end]:
                queues[piece.start + place].add(number)
        assert piece.wanted.tolist() == [bool(each) for each in queues[piece.start : piece.stop]]
    return queues


@pytest.mark.parametrize("slices", [None, 1, 2, 3])
@pytest.mark.parametrize("count", [5, 200])
def test_what_is_found_is_what_the_filters_say(slices: int | None, count: int) -> None:
    filters = {number: f"a > {number % 7} and b < {number % 5}" for number in range(1, 60)}
    filters[60] = "not (a = 3) or b in (1, 2)"
    engine: Engine = ScanEngine() if slices is None else LocalEngine(slices=slices)
    assert found(engine, [{"a": 1}]) == [set()]
    change(engine, [Added(subscription(number, text), 100 + number) for number, text in filters.items()])
    change(engine, [Removed(subscription(number, filters.pop(number))) for number in (3, 17)])
    rows = [{"a": place % 9, "b": place % 4} for place in range(count)]
    expected = [{100 + number for number, text in filters.items() if parse(text).matches(row)} for row in rows]
    assert found(engine, rows) == expected
    engine.close()


@pytest.mark.parametrize("slices", [1, 2, 8])
def test_whatever_was_accepted_once_is_taken_and_found(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters beyond all limits of today, as a version with others, or more slices, may have accepted them."""
    monkeypatch.setattr(table, "DIMENSIONS_MAX", 12)
    filters = {number: f"x{number} > 1 and y{number} > 1 and common > {number}" for number in range(1, 200)}
    filters[200] = "(" * 40 + "common > 200" + ")" * 40
    engine = LocalEngine(slices=slices)
    change(engine, [Added(subscription(number, text), number) for number, text in filters.items()])
    gone = [7, 8, 9, 150]
    change(engine, [Removed(subscription(number, filters.pop(number))) for number in gone])
    for take_effect in engine._merges():
        take_effect()
    rows: list[dict[str, int]] = [{f"x{n}": 2, f"y{n}": 2, "common": 1000} for n in (1, 7, 100, 199)]
    assert found(engine, rows) == [{1, 200}, {200}, {100, 200}, {199, 200}]
    engine.close()


def test_indexes_are_joined_while_nothing_changes() -> None:
    engine = LocalEngine(slices=2, quiet_s=0.2)
    texts = {number: f"a = {number}" for number in range(1, 40)}
    added = [Added(subscription(number, text), number) for number, text in texts.items()]
    for some in (added[:20], added[20:]):
        change(engine, some)
    slices = list(engine._namespaces[""]._slices["plain"]._match_slices())

    def segments() -> int:
        assert found(engine, [{"a": number} for number in texts]) == [{number} for number in texts]
        return max(each.statistics()["plain"].segments for each in slices)

    deadline_s = time.monotonic() + 60
    while segments() > 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)  # or the two would fight over the interpreter
    engine.close()
