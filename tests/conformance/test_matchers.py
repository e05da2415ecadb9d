"""What every matcher promises, checked on every one there is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance.matcher_cases import CASES, Case, Row, random_filters, random_rows

from lavant.broker.filters import Filter
from lavant.broker.matching import MATCHERS, Matcher
from lavant.broker.matching.snapshots import MANIFEST
from lavant.core.errors import CorruptSnapshot, DuplicateSubscription, InvalidValue, UnknownSubscription

Oracle = dict[int, Filter]


@pytest.fixture(params=sorted(MATCHERS))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def expected(oracle: Oracle, rows: list[Row]) -> list[list[int]]:
    return [sorted(id for id, filter in oracle.items() if filter.matches(row)) for row in rows]


def found(matcher: Matcher[Any, Any], case: Case, rows: list[Row]) -> list[list[int]]:
    matches = matcher.match(case.batch(rows)).sorted()
    return [matches.of(i).tolist() for i in range(len(rows))]


def filled(case: Case, random: np.random.Generator, count: int) -> tuple[Any, Oracle]:
    matcher, filters = case.matcher(), random_filters(random, count)
    matcher.add(range(count), case.filters(filters))
    return matcher, dict(enumerate(filters))


def test_an_empty_matcher_matches_nothing(case: Case, random: np.random.Generator) -> None:
    assert found(case.matcher(), case, random_rows(random, 3)) == [[], [], []]


def test_an_empty_batch_is_fine(case: Case, random: np.random.Generator) -> None:
    matcher, _ = filled(case, random, 10)
    one = case.batch(random_rows(random, 1))
    assert matcher.match(one).offsets[0] == 0
    assert len(found(matcher, case, random_rows(random, 1))) == 1


def test_it_follows_additions_and_removals(case: Case, random: np.random.Generator) -> None:
    matcher, oracle = case.matcher(), Oracle()
    rows = random_rows(random, 25)
    next_id = 0
    for step in range(40):
        filters = random_filters(random, int(random.integers(1, 30)))
        ids = range(next_id, next_id + len(filters))
        next_id += len(filters)
        matcher.add(ids, case.filters(filters))
        oracle.update(zip(ids, filters, strict=True))
        if step % 3 == 2:
            gone = random.choice(sorted(oracle), size=min(len(oracle), int(random.integers(1, 40))), replace=False)
            matcher.remove(gone)
            for id in gone:
                del oracle[int(id)]
        assert found(matcher, case, rows) == expected(oracle, rows)
    statistics = matcher.statistics()
    assert statistics.subscriptions == len(matcher) == len(oracle)
    assert statistics.memory_bytes > 0


def test_everything_can_be_removed_and_ids_used_again(case: Case, random: np.random.Generator) -> None:
    matcher, oracle = filled(case, random, 50)
    rows = random_rows(random, 10)
    matcher.remove(sorted(oracle))
    assert found(matcher, case, rows) == [[]] * 10
    filters = random_filters(random, 50)
    matcher.add(range(50), case.filters(filters))
    assert found(matcher, case, rows) == expected(dict(enumerate(filters)), rows)


def test_a_taken_id_is_refused_and_nothing_changes(case: Case, random: np.random.Generator) -> None:
    matcher, oracle = filled(case, random, 10)
    filters = case.filters(random_filters(random, 2))
    with pytest.raises(DuplicateSubscription, match="subscription 9 exists already"):
        matcher.add([10, 9], filters)
    with pytest.raises(DuplicateSubscription, match="12"):
        matcher.add([12, 12], filters)
    assert len(matcher) == len(oracle)
    assert 10 not in matcher


def test_an_unknown_id_is_refused_and_nothing_changes(case: Case, random: np.random.Generator) -> None:
    matcher, oracle = filled(case, random, 10)
    with pytest.raises(UnknownSubscription, match="no subscription has id 77"):
        matcher.remove([3, 77])
    assert len(matcher) == len(oracle)
    assert 3 in matcher


@pytest.mark.parametrize("ids", [[-1, 2], [2**32, 2], ["a", "b"], [[1, 2]], [1.5, 2.5]])
def test_ids_out_of_range_are_refused(case: Case, random: np.random.Generator, ids: list[Any]) -> None:
    with pytest.raises(InvalidValue, match="subscription id"):
        case.matcher().add(ids, case.filters(random_filters(random, 2)))


def test_as_many_ids_as_filters(case: Case, random: np.random.Generator) -> None:
    with pytest.raises(InvalidValue, match="got 1 ids for 2 filters"):
        case.matcher().add([1], case.filters(random_filters(random, 2)))


@pytest.mark.parametrize("way", ["snapshot", "bytes"])
def test_a_snapshot_opens_as_it_was_and_goes_on(
    case: Case, random: np.random.Generator, tmp_path: Path, way: str
) -> None:
    matcher, oracle = filled(case, random, 300)
    matcher.remove(range(0, 60))
    for id in range(60):
        del oracle[id]
    rows = random_rows(random, 20)
    if way == "bytes":
        copy = case.matcher.from_bytes(matcher.to_bytes())
    else:
        matcher.snapshot(tmp_path)
        copy = case.matcher.open(tmp_path)
    assert copy.version == matcher.version
    assert copy.holds(np.array([0, 59, 60, 299, 300], np.uint32)).tolist() == [False, False, True, True, False]
    assert found(copy, case, rows) == expected(oracle, rows)
    filters = random_filters(random, 5)
    copy.add(range(5), case.filters(filters))
    copy.remove([200])
    del oracle[200]
    oracle.update(enumerate(filters))
    assert found(copy, case, rows) == expected(oracle, rows)


def test_a_copy_follows_by_deltas(case: Case, random: np.random.Generator, tmp_path: Path) -> None:
    matcher, oracle = filled(case, random, 100)
    matcher.snapshot(tmp_path)
    copy = case.matcher.open(tmp_path)
    rows = random_rows(random, 20)
    for start in (100, 200):
        filters = random_filters(random, 30)
        matcher.add(range(start, start + 30), case.filters(filters))
        oracle.update(zip(range(start, start + 30), filters, strict=True))
        matcher.remove([start, start - 75])
        del oracle[start], oracle[start - 75]
        copy.apply(matcher.delta(since=copy.version))
        assert copy.version == matcher.version
        assert found(copy, case, rows) == expected(oracle, rows)


def test_a_delta_fits_only_its_version(case: Case, random: np.random.Generator) -> None:
    matcher, _ = filled(case, random, 10)
    delta = matcher.delta(since=0)
    with pytest.raises(InvalidValue, match="starts at version 0, the matcher is at 1"):
        matcher.apply(delta)
    with pytest.raises(InvalidValue, match="take a snapshot"):
        matcher.delta(since=5)
    middle = len(delta) // 2
    with pytest.raises(CorruptSnapshot, match="damaged"):
        case.matcher().apply(delta[:middle] + bytes(byte ^ 255 for byte in delta[middle:]))


def test_a_second_snapshot_replaces_the_first(case: Case, random: np.random.Generator, tmp_path: Path) -> None:
    matcher, oracle = filled(case, random, 100)
    for _ in range(4):
        matcher.snapshot(tmp_path)
        filters = random_filters(random, 60)
        ids = range(max(oracle) + 1, max(oracle) + 61)
        matcher.add(ids, case.filters(filters))
        oracle.update(zip(ids, filters, strict=True))
    matcher.snapshot(tmp_path)
    rows = random_rows(random, 10)
    assert found(case.matcher.open(tmp_path), case, rows) == expected(oracle, rows)
    assert len(list(tmp_path.glob("segment-*"))) <= 2 * matcher.statistics().segments + 1


def test_a_damaged_snapshot_is_refused(case: Case, random: np.random.Generator, tmp_path: Path) -> None:
    matcher, _ = filled(case, random, 10)
    with pytest.raises(CorruptSnapshot, match="holds no snapshot"):
        case.matcher.open(tmp_path)
    matcher.snapshot(tmp_path)
    manifest = tmp_path / MANIFEST
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:40] + bytes(1) + whole[41:])
    with pytest.raises(CorruptSnapshot, match="damaged header"):
        case.matcher.open(tmp_path)
    manifest.write_bytes(whole)
    next(tmp_path.glob("segment-*")).unlink()
    with pytest.raises(CorruptSnapshot, match="is missing"):
        case.matcher.open(tmp_path)


def test_bytes_of_another_scheme_are_refused(case: Case, random: np.random.Generator) -> None:
    other = next(matcher for matcher in MATCHERS.values() if matcher is not case.matcher)
    with pytest.raises(CorruptSnapshot, match="is of a matcher of scheme"):
        case.matcher.from_bytes(other().to_bytes())


def test_a_snapshot_of_another_scheme_is_refused(case: Case, random: np.random.Generator, tmp_path: Path) -> None:
    matcher, _ = filled(case, random, 10)
    matcher.snapshot(tmp_path)
    for other in MATCHERS.values():
        if other is not case.matcher:
            with pytest.raises(CorruptSnapshot, match="scheme"):
                other.open(tmp_path)


def test_matching_goes_on_while_another_thread_changes_it(case: Case, random: np.random.Generator) -> None:
    """Each batch sees the subscriptions of one moment: those of one of the versions, never half of an addition."""
    matcher, _ = filled(case, random, 100)
    everything = [Filter.parse("a >= 0")] * 20
    batch = case.batch(random_rows(random, 5))
    stop = False

    def change() -> int:
        rounds = 0
        while not stop:
            matcher.add(range(1000, 1020), case.filters(everything))
            matcher.remove(range(1000, 1020))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as executor:
        changing = executor.submit(change)
        for _ in range(60):
            matches = matcher.match(batch)
            for i in range(5):
                late = [id for id in matches.of(i).tolist() if id >= 1000]
                assert len(late) in (0, 20)
        stop = True
        assert changing.result() > 0
