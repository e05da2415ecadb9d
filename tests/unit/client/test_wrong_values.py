"""Wrong arguments of what `lavant` has beside clients: each is answered by one line that names what was wanted."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import lavant
from lavant.core.errors import InvalidValue, LavantError

WRONG: list[Any] = [None, 5, -1, 1.5, math.nan, True, b"bytes", [5], {"a": object()}, object()]
BATCH = lavant.PublicationBatch.from_dicts([{"a": 1}])
CALLS: dict[str, Callable[[Any], Any]] = {
    "Filter.parse": lavant.Filter.parse,
    "covers": lambda it: lavant.covers(it, "a = 1"),
    "intersects": lambda it: lavant.intersects("a = 1", it),
    "explain filter": lambda it: lavant.explain(it, {"a": 1}),
    "explain attributes": lambda it: None if isinstance(it, dict) else lavant.explain("a = 1", it),
    "PlainMatcher.add": lambda it: lavant.PlainMatcher().add([1], [it]),
    "PlainMatcher.match": lambda it: lavant.PlainMatcher().match(it),
    "ScanMatcher.add": lambda it: lavant.ScanMatcher().add([1], [it]),
    "ScanMatcher.match": lambda it: lavant.ScanMatcher().match(it),
    "from_dicts": lavant.PublicationBatch.from_dicts,
    "from_dicts one": lambda it: lavant.PublicationBatch.from_dicts([it]),
    "from_json_lines": lavant.from_json_lines,
    "to_json_lines": lavant.to_json_lines,
    "Publication": lavant.Publication,
    "Publication trace": lambda it: lavant.Publication({}, trace=it),
    "task": lavant.task,
    "task of": lavant.task("a"),
    **{
        f"{kind.__name__} {name}": partial(lambda kind, name, it: kind(**{name: it}), kind, name)
        for kind in (lavant.Retries, lavant.PublisherConfig, lavant.TuningConfig)
        for name in kind.__struct_fields__
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_value_is_answered_in_one_line(name: str) -> None:
    said = []
    for value in WRONG:
        try:
            CALLS[name](value)
        except LavantError as error:
            said.append(str(error))
    assert not [each for each in said if "\n" in each]


def test_filters_may_be_texts() -> None:
    assert lavant.covers("a > 1", lavant.Filter.parse("a > 2"))
    assert not lavant.intersects("a > 1", "a < 1")
    assert [each.held for each in lavant.explain("a > 1", {"a": 0})] == [False]
    assert len(lavant.from_json_lines('{"a": "ü"}')) == 1


def test_a_matcher_without_filters_refuses_what_is_no_batch() -> None:
    for matcher in (lavant.PlainMatcher(), lavant.ScanMatcher()):
        assert matcher.match(BATCH).of(0).tolist() == []
        with pytest.raises(InvalidValue, match=r"as PublicationBatch\.from_dicts makes it, got \[\{'a': 1\}\]"):
            matcher.match([{"a": 1}])  # type: ignore[arg-type]
