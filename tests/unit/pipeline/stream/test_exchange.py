"""Finds of several hosts, through files, to one list for each publication."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching import Matches
from lavant.core.errors import LimitExceeded
from lavant.pipeline.stream import exchange
from lavant.pipeline.stream.exchange import SCHEMA, Lists, RefusedRecord, merge_files, write_file

Row = tuple[int, str | None, list[int], str | None]


def lists(finds: dict[int, list[int]], rejected: dict[int, str] | None = None) -> Lists:
    keys = sorted(finds)
    offsets = np.cumsum([0, *(len(finds[key]) for key in keys)])
    ids = np.array([id for key in keys for id in finds[key]], np.uint32)
    names = pa.array([f"p{key}" for key in keys], pa.string())
    refused = {key: RefusedRecord(f"p{key}", reason) for key, reason in (rejected or {}).items()}
    return Lists(np.array(keys, np.int64), names, Matches(offsets, ids), refused)


def rows(records: pa.RecordBatch) -> list[Row]:
    assert records.schema == SCHEMA
    return [(row["key"], row["id"], row["subscriptions"], row["rejected"]) for row in records.to_pylist()]


def merged(directory: Path, *hosts: list[Lists]) -> list[Row]:
    return rows(merge_files([directory / write_file(directory, host) for host in hosts]))


def test_finds_and_refusals_become_rows() -> None:
    records = lists({3: [7, 8], 5: [9]}, {9: "bad", 4: "worse"}).to_records()
    assert rows(records) == [
        (3, "p3", [7, 8], None),
        (5, "p5", [9], None),
        (4, "p4", [], "worse"),
        (9, "p9", [], "bad"),
    ]


def test_the_lists_of_all_hosts_become_one(tmp_path: Path) -> None:
    first, second = lists({1: [10, 11], 4: [12]}), lists({1: [20], 2: [21, 22]})
    assert merged(tmp_path, [first], [second]) == [
        (1, "p1", [10, 11, 20], None),
        (2, "p2", [21, 22], None),
        (4, "p4", [12], None),
    ]


def test_a_host_may_write_several_batches(tmp_path: Path) -> None:
    assert merged(tmp_path, [lists({5: [1]}), lists({2: [2]}), lists({9: [3]})], [lists({9: [4], 5: [5]})]) == [
        (2, "p2", [2], None),
        (5, "p5", [1, 5], None),
        (9, "p9", [3, 4], None),
    ]


def test_refusals_stand_among_the_finds_by_key(tmp_path: Path) -> None:
    assert merged(tmp_path, [lists({1: [1], 3: [3]}, {2: "no number"})], [lists({3: [4]})]) == [
        (1, "p1", [1], None),
        (2, "p2", [], "no number"),
        (3, "p3", [3, 4], None),
    ]


def test_hosts_that_found_nothing_do_no_harm(tmp_path: Path) -> None:
    assert merged(tmp_path, [], [lists({})], [lists({1: [1]})], [lists({})]) == [(1, "p1", [1], None)]
    assert merged(tmp_path, [], [lists({})]) == []
    assert rows(merge_files([])) == []


def test_every_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = {write_file(tmp_path / "exchange", [lists({1: [1]})]) for _ in range(5)}
    assert {path.name for path in (tmp_path / "exchange").iterdir()} == names
    assert len(names) == 5


def test_matches_whose_offsets_do_not_start_at_zero_are_taken_from_there() -> None:
    found = Lists(np.array([1]), pa.array(["p1"]), Matches(np.array([2, 4]), np.arange(4, dtype=np.uint32)), {})
    assert rows(found.to_records()) == [(1, "p1", [2, 3], None)]


def test_the_largest_ids_stay_what_they_are(tmp_path: Path) -> None:
    top = 2**32 - 1
    assert merged(tmp_path, [lists({2**62: [top]})], [lists({2**62: [0]})]) == [(2**62, f"p{2**62}", [top, 0], None)]


def test_more_matches_than_a_list_can_count_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_many = Lists(np.array([1]), pa.array(["p1"]), Matches(np.array([0, 2**31]), np.empty(0, np.uint32)), {})
    with pytest.raises(LimitExceeded, match="2147483648 matches, at most 2147483647 fit; lower rowsMax"):
        too_many.to_records()
    files = [tmp_path / write_file(tmp_path, [lists({1: [1, 2]})]) for _ in range(2)]
    monkeypatch.setattr(exchange, "MATCHES_MAX", 3)
    with pytest.raises(LimitExceeded, match="4 matches, at most 3 fit"):
        merge_files(files)


HOST = st.dictionaries(st.integers(0, 20), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4), max_size=6)


@given(hosts=st.lists(st.lists(HOST, max_size=2), max_size=4))
def test_merging_is_what_a_dict_does(
    hosts: list[list[dict[int, list[int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("exchange")
    expected: dict[int, list[int]] = {}
    for host in hosts:
        for finds in host:
            for key, ids in finds.items():
                expected.setdefault(key, []).extend(ids)
    found = merged(directory, *([lists(finds) for finds in host] for host in hosts))
    assert found == [(key, f"p{key}", expected[key], None) for key in sorted(expected)]
