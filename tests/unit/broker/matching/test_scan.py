"""The scan is the oracle of the other matchers, so it is itself checked against the filters one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.broker.filters import Filter
from lavant.broker.matching import ScanMatcher
from lavant.core.errors import FilterSyntaxError
from lavant.core.publications.batch import PublicationBatch

TEXTS = [
    "a = 1",
    "a != 1 or b like '%x'",
    "not exists(a)",
    "s in ('x', 'y') and a between 1 and 2",
    "b = true",
    "false",
    "true",
]
ROWS: list[dict[str, str | int | float | bool]] = [{"a": 1}, {"a": 2.5, "b": "x"}, {"s": "x", "a": 2}, {"b": True}, {}]


def matched(matcher: ScanMatcher) -> list[list[int]]:
    matches = matcher.match(PublicationBatch.from_dicts(ROWS)).sorted()
    return [matches.of(i).tolist() for i in range(len(ROWS))]


def filled() -> ScanMatcher:
    matcher = ScanMatcher()
    matcher.add(range(10, 10 + len(TEXTS)), TEXTS)
    return matcher


def test_it_tries_every_filter_on_every_publication() -> None:
    expected = [[10 + i for i, text in enumerate(TEXTS) if Filter.parse(text).matches(row)] for row in ROWS]
    assert matched(filled()) == expected
    assert expected[0] == [10, 16]


def test_filters_and_texts_may_be_mixed() -> None:
    matcher = ScanMatcher()
    matcher.add([1, 2], [Filter.parse("a = 1"), "a = 1"])
    assert matched(matcher)[0] == [1, 2]


def test_a_filter_that_cannot_be_read_adds_none_of_the_others() -> None:
    matcher = ScanMatcher()
    with pytest.raises(FilterSyntaxError):
        matcher.add([1, 2], ["a = 1", "a = "])
    assert (len(matcher), matcher.version) == (0, 0)


def test_filters_survive_a_snapshot_and_deltas(tmp_path: Path) -> None:
    matcher, follower = filled(), ScanMatcher()
    matcher.remove([11])
    matcher.snapshot(tmp_path)
    follower.apply(matcher.delta(since=0))
    assert matched(ScanMatcher.open(tmp_path)) == matched(follower) == matched(matcher)
    assert ScanMatcher.open(tmp_path).version == follower.version == 2


def test_changes_of_nothing_are_no_version() -> None:
    matcher = ScanMatcher()
    matcher.add([], [])
    matcher.remove([])
    assert matcher.version == 0


def test_statistics_count_subscriptions_and_versions() -> None:
    statistics = filled().statistics()
    assert (statistics.subscriptions, statistics.segments, statistics.version) == (len(TEXTS), 1, 1)
