"""Matches by publication."""

from __future__ import annotations

import numpy as np

from lavant.broker.matching import MATCHERS, Matcher, Matches, PlainMatcher, ScanMatcher


def test_each_publication_has_its_own_ids() -> None:
    matches = Matches(np.array([0, 2, 2, 3]), np.array([9, 4, 7], np.uint32))
    assert [matches.of(i).tolist() for i in range(3)] == [[9, 4], [], [7]]


def test_sorting_keeps_every_id_with_its_publication() -> None:
    matches = Matches(np.array([0, 3, 3, 5]), np.array([9, 4, 7, 8, 1], np.uint32)).sorted()
    assert [matches.of(i).tolist() for i in range(3)] == [[4, 7, 9], [], [1, 8]]
    assert matches.ids.dtype == np.uint32


def test_no_publications_sort_to_none() -> None:
    assert Matches(np.array([0]), np.empty(0, np.uint32)).sorted().ids.tolist() == []


def test_matchers_are_known_by_their_scheme() -> None:
    assert {scheme: matcher.scheme for scheme, matcher in MATCHERS.items()} == {
        "scan": "scan",
        "plain": "plain",
        "encrypted": "encrypted",
    }


def test_matchers_fulfil_the_protocol() -> None:
    members = [name for name in vars(Matcher) if not name.startswith("_")]
    assert set(members) >= {"add", "remove", "match", "statistics", "snapshot", "open", "delta", "apply"}
    for matcher in (PlainMatcher, ScanMatcher):
        assert all(callable(getattr(matcher, name)) for name in members)
