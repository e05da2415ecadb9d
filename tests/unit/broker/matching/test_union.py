"""Matchers of disjoint subscriptions, joined into one."""

from __future__ import annotations

from lavant.broker.matching import PlainMatcher
from lavant.core.publications.batch import PublicationBatch


def test_a_union_matches_what_its_parts_match_in_one_segment() -> None:
    parts = [PlainMatcher() for _ in range(3)]
    for number in range(30):
        parts[number % 3].add([number], [f"volume > {number}"])
    parts[1].remove([4, 7])
    union = PlainMatcher.union(parts)
    batch = PublicationBatch.from_dicts([{"volume": 9}, {"volume": 100}, {}])
    found = union.match(batch).sorted()
    assert [found.of(row).tolist() for row in range(3)] == [
        sorted(id for part in parts for id in part.match(batch).of(row).tolist()) for row in range(3)
    ]
    assert union.statistics().segments == 1
    assert [len(part) for part in parts] == [10, 8, 10]


def test_a_union_of_nothing_matches_nothing() -> None:
    union = PlainMatcher.union([PlainMatcher(), PlainMatcher()])
    assert (len(union), len(union.match(PublicationBatch.from_dicts([{"a": 1}])).ids)) == (0, 0)
