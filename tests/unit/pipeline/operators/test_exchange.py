"""Results of match tasks: encoded, divided by exit task, and merged to one list for each publication."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching import Matches
from lavant.broker.matching.runs import Runs
from lavant.core.errors import LimitExceeded
from lavant.pipeline.cluster.probes import Probe
from lavant.pipeline.operators import exchange
from lavant.pipeline.operators.access import RefusedRow
from lavant.pipeline.operators.exchange import MatchedBlock, SegmentKey, merge_blocks
from lavant.pipeline.operators.parquet import encode
from lavant.pipeline.operators.parts import notifications
from lavant.pipeline.operators.tasks import exit_bounds

ROWS = 50
"""Of each segment; the subscription of a row is its number plus 100 for each segment before."""


def row_ids(key: SegmentKey) -> np.ndarray:
    return np.arange(ROWS, dtype=np.uint32) + np.uint32(100 * key.place)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[list[MatchedBlock], list[list[int]]]:
    """The results of some hosts for the same publications, and the ids that they mean."""
    count, hosts = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    meant: list[list[int]] = [[] for _ in range(count)]
    made = []
    refused = [RefusedRow(row, f"r{row}", "bad") for row in range(count) if draw(st.integers(0, 5)) == 0]
    for host in range(hosts):
        ids = [draw(st.lists(st.integers(1000, 2000), max_size=4)) for _ in range(count)]
        runs = []
        for place in range(draw(st.integers(0, 2))):
            publications = sorted(draw(st.lists(st.integers(0, count - 1), max_size=6)))
            starts = [draw(st.integers(0, ROWS - 1)) for _ in publications]
            lengths = [draw(st.integers(1, ROWS - start)) for start in starts]
            key = SegmentKey(host, place)
            runs.append((key, Runs(*(np.array(each, np.uint32) for each in (publications, starts, lengths)))))
            for publication, start, length in zip(publications, starts, lengths, strict=True):
                meant[publication] += row_ids(key)[start : start + length].tolist()
        for publication, each in enumerate(ids):
            meant[publication] += each
        offsets = np.cumsum([0, *map(len, ids)])
        rest = Matches(offsets, np.array([id for each in ids for id in each], np.uint32))
        names = pa.array([f"p{number}" for number in range(count)]) if host == 0 else None
        probes = [Probe(host=host, slice=host)]
        made.append(MatchedBlock(70, count, host, runs, rest, refused if host == 0 else [], names, probes))
    return made, meant


def travelled(block: MatchedBlock) -> MatchedBlock:
    return MatchedBlock.from_bytes(block.to_bytes())


@given(blocks(), st.data())
def test_every_publication_gets_the_ids_of_all_hosts_whatever_the_exit_tasks(
    made: tuple[list[MatchedBlock], list[list[int]]], data: st.DataObject
) -> None:
    found, meant = made
    slices = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    bounds = exit_bounds(len(meant), [range(count) for count in slices])
    rows = []
    for first, last in pairwise(bounds):
        parts = [travelled(block.between(first, last)) for block in found]
        if last > first:
            content = encode(*notifications(parts, merge_blocks(parts, row_ids)))
            rows += pq.read_table(pa.BufferReader(b"".join(content))).to_pylist()
    refused = {each.row: each for each in found[0].refused}
    expected = [
        (
            70 + row,
            refused[row].id if row in refused else f"p{row}",
            sorted(ids),
            refused[row].reason if row in refused else None,
        )
        for row, ids in enumerate(meant)
        if ids or row in refused
    ]
    assert [(row["key"], row["id"], sorted(row["subscriptions"]), row["rejected"]) for row in rows] == expected


@given(blocks())
def test_a_block_arrives_as_it_was_sent(made: tuple[list[MatchedBlock], list[list[int]]]) -> None:
    for block in made[0]:
        there = travelled(block)
        assert there._replace(runs=[], rest=None, names=None) == block._replace(runs=[], rest=None, names=None)  # type: ignore[arg-type]
        assert (None if there.names is None else there.names.to_pylist()) == (
            None if block.names is None else block.names.to_pylist()
        )
        assert there.rest.ids.tolist() == block.rest.ids.tolist()
        assert there.rest.offsets.tolist() == block.rest.offsets.tolist()
        kept = [(key, runs) for key, runs in block.runs if len(runs.length)]
        assert [(key, [each.tolist() for each in runs]) for key, runs in there.runs] == [
            (key, [each.tolist() for each in runs]) for key, runs in kept
        ]


def test_more_matches_than_a_part_can_hold_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MATCHES_MAX", 2)
    block = MatchedBlock(0, 1, 0, [], Matches(np.array([0, 3]), np.arange(3, dtype=np.uint32)), [], None, [])
    with pytest.raises(LimitExceeded, match="an exit task has 3 matches, at most 2 fit; lower rowsMax"):
        merge_blocks([block], row_ids)


@given(st.integers(0, 1000), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_exit_tasks_divide_the_publications_by_their_slices(count: int, slices: list[int]) -> None:
    bounds = exit_bounds(count, [range(each) for each in slices])
    assert bounds[0] == 0
    assert list(bounds) == sorted(bounds)
    if sum(slices):
        assert bounds[-1] == count
        for place, each in enumerate(slices):
            assert abs(bounds[place + 1] - bounds[place] - count * each / sum(slices)) < 1
