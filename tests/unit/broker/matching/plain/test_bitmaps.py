"""For every publication, the rows that `maybe` leaves hold all matches, and those that `sure` leaves are matches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lavant.broker.matching.plain.bitmaps import BLOCK_ROWS, BUCKET_ROWS_MIN, EDGES_MAX, Bitmaps, _quantiles, find_cells
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.index import Checks, build_index
from lavant.broker.matching.plain.literals import build_literals
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, FilterTable

Flags = NDArray[np.bool_]
Doubles = NDArray[np.float64]


class Case(NamedTuple):
    """Bounds of each row on each dimension (NaN where it has none), and publications."""

    low: Doubles
    high: Doubles
    values: Doubles


def table_of(case: Case) -> FilterTable:
    row, dimension = np.nonzero(~np.isnan(case.low))
    rows = len(case.low)
    return FilterTable(
        rows,
        tuple((f"a{d}", ConstraintKind.NUMBER) for d in range(case.low.shape[1])),
        StringTable.of([]),
        np.arange(rows, dtype=np.uint32),
        np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.uint32),
        dimension.astype(np.uint16),
        case.low[row, dimension],
        case.high[row, dimension],
        ExtraConstraints.none(),
    )


def combined(bitmaps: Bitmaps, block: int, lines: NDArray[np.uint64], cells: NDArray[np.uint8]) -> Flags:
    """The AND of a block's bitmaps: publications × rows."""
    masks = np.full((cells.shape[2], BLOCK_ROWS // 64), ~np.uint64(0))
    for j in range(bitmaps.block_start[block], bitmaps.block_start[block + 1]):
        masks &= lines[bitmaps.first_line[j] + cells[bitmaps.shift[j], bitmaps.dimension[j]].astype(np.int64)]
    return np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)


def truth(checks: Checks, first: int, rows: int, values: Doubles) -> Flags:
    """Which publications match which of the block's rows, predicate by predicate."""
    found = np.ones((len(values), rows), np.bool_)
    for r in range(rows):
        for p in range(checks.start[first + r], checks.start[first + r + 1]):
            value = values[:, checks.dimension[p]]
            found[:, r] &= (checks.bounds[p, 0] <= value) & (value <= checks.bounds[p, 1])
    return found


def blocks_of(case: Case) -> list[tuple[Flags, Flags, Flags, Bitmaps]]:
    """For each block: maybe, match, sure."""
    table = table_of(case)
    index, checks, cells, bitmaps = build_index(np.arange(len(table), dtype=np.uint32), table, build_literals(table))
    found = find_cells(cells, case.values)
    blocks = []
    for block, rows in enumerate(bitmaps.rows):
        first = int(bitmaps.first_row[block] - checks.first_row[0])
        maybe, sure = (combined(bitmaps, block, lines, found) for lines in (bitmaps.maybe, bitmaps.sure))
        assert not maybe[:, rows:].any()
        assert not sure[:, rows:].any()
        blocks.append((maybe[:, :rows], truth(checks, first, int(rows), case.values), sure[:, :rows], bitmaps))
    assert sum(bitmaps.rows) == len(index.row_ids)
    return blocks


def random_case(random: np.random.Generator, *, rows: int, dimensions: int, points: int, share: float = 0.6) -> Case:
    """Intervals with ends among `points` numbers, some open, and values on the ends, beside them, and absent."""
    ends = np.sort(random.normal(0, 1, points))
    first, last = np.sort(random.integers(0, points, (2, rows, dimensions)), axis=0)
    low, high = ends[first], ends[last]
    low[random.random(low.shape) < 0.15] = -np.inf
    high[random.random(high.shape) < 0.15] = np.inf
    high = np.where(low == high, np.nextafter(high, np.inf), high)  # a point would be a key
    gone = random.random(low.shape) > share
    gone[:, :2] = False  # two ranges at least: MIXED
    low[:, 0] = np.where(np.isinf(low[:, 0]), ends[0] - 1, low[:, 0])
    high[:, 0] = np.where(np.isinf(high[:, 0]), ends[-1] + 1, high[:, 0])
    low[gone] = high[gone] = np.nan
    near = np.concatenate([ends, np.nextafter(ends, np.inf), np.nextafter(ends, -np.inf), [-9.0, 9.0, np.nan]])
    return Case(low, high, random.choice(near, (60, dimensions)))


@pytest.mark.parametrize("points", [2, 10, 31, 32, 200])
@pytest.mark.parametrize("rows", [BUCKET_ROWS_MIN + 1, 128, 511, 512, 513, 1100])
def test_maybe_holds_all_matches_and_sure_only_matches(rows: int, points: int) -> None:
    random = np.random.default_rng([rows, points])
    for maybe, match, sure, _ in blocks_of(random_case(random, rows=rows, dimensions=5, points=points)):
        assert (maybe | ~match).all()
        assert (match | ~sure).all()


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 90), st.floats(0.0, 1.0))
def test_maybe_match_and_sure_are_nested_whatever_the_intervals(seed: int, points: int, share: float) -> None:
    case = random_case(np.random.default_rng(seed), rows=100, dimensions=4, points=points, share=share)
    for maybe, match, sure, _ in blocks_of(case):
        assert (maybe | ~match).all()
        assert (match | ~sure).all()


def test_with_an_edge_at_every_bound_nothing_is_left_to_check() -> None:
    """Few distinct bounds, no cells joined: each cell lies wholly inside an interval or wholly outside."""
    random = np.random.default_rng(3)
    for maybe, match, sure, bitmaps in blocks_of(random_case(random, rows=600, dimensions=3, points=15, share=1.0)):
        assert not bitmaps.shift.any()
        assert np.array_equal(maybe, match)
        assert np.array_equal(sure, match)


def test_bitmaps_leave_little_to_check() -> None:
    random = np.random.default_rng(4)
    open_rows = matches = 0
    for maybe, match, sure, _ in blocks_of(random_case(random, rows=1100, dimensions=5, points=500)):
        open_rows += int((maybe & ~sure).sum())
        matches += int(match.sum())
        assert sure.any()
    assert open_rows < matches


def test_a_dimension_that_few_rows_constrain_has_joined_cells() -> None:
    random = np.random.default_rng(5)
    case = random_case(random, rows=500, dimensions=4, points=40, share=1.0)
    for d, kept in ((2, 100), (3, 50)):  # below a quarter, below an eighth
        case.low[kept:, d] = case.high[kept:, d] = np.nan
    for maybe, match, sure, bitmaps in blocks_of(case):
        assert dict(zip(bitmaps.dimension.tolist(), bitmaps.shift.tolist(), strict=True)) == {0: 0, 1: 0, 2: 1, 3: 2}
        assert (maybe | ~match).all()
        assert (match | ~sure).all()


def test_more_dimensions_than_a_plan_has_room_for_at_first() -> None:
    random = np.random.default_rng(6)
    case = random_case(random, rows=600, dimensions=700, points=20, share=1.0)
    for maybe, match, sure, bitmaps in blocks_of(case._replace(values=case.values[:8])):
        assert len(bitmaps.dimension) == 1400
        assert np.array_equal(maybe, match)
        assert np.array_equal(sure, match)


def test_small_buckets_have_no_bitmaps() -> None:
    random = np.random.default_rng(7)
    table = table_of(random_case(random, rows=BUCKET_ROWS_MIN, dimensions=3, points=9))
    *_, bitmaps = build_index(np.arange(len(table), dtype=np.uint32), table, build_literals(table))
    assert len(bitmaps.rows) == 0


def test_the_most_selective_dimension_of_a_block_comes_first() -> None:
    rows = 100
    low, high = np.zeros((rows, 3)), np.ones((rows, 3))
    low[:, 1] = np.arange(rows) / rows
    high[:, 1] = low[:, 1] + 0.01
    case = Case(low, high, np.full((1, 3), 0.5))
    ((_, _, _, bitmaps),) = blocks_of(case)
    assert bitmaps.dimension[0] == 1


def test_an_extra_keeps_a_row_from_being_sure() -> None:
    random = np.random.default_rng(8)
    case = random_case(random, rows=100, dimensions=2, points=9, share=1.0)
    plain = table_of(case)
    extras = ExtraConstraints.of(list(range(len(plain.low))), [[(5.0, 6.0)]] * len(plain.low), [()] * len(plain.low))
    table = FilterTable(
        plain.count, plain.dimensions, plain.strings, plain.row_filter, plain.row_start, plain.dimension,
        plain.low, plain.high, extras,
    )  # fmt: skip
    *_, bitmaps = build_index(np.arange(100, dtype=np.uint32), table, build_literals(table))
    assert not bitmaps.sure.any()
    assert bitmaps.maybe.any()


def test_quantiles_are_at_most_as_many_as_cells_allow() -> None:
    few = np.arange(EDGES_MAX, dtype=np.float64)
    assert _quantiles(np.sort(np.repeat(few, 5))).tolist() == few.tolist()
    many = _quantiles(np.sort(np.concatenate([np.zeros(1000), np.arange(200)])))
    assert len(many) <= EDGES_MAX
    assert (np.diff(many) > 0).all()


def test_cells_are_numbered_from_one_and_zero_is_for_no_value() -> None:
    case = random_case(np.random.default_rng(9), rows=100, dimensions=2, points=31, share=1.0)
    table = table_of(case)
    _, _, cells, _ = build_index(np.arange(100, dtype=np.uint32), table, build_literals(table))
    edges = cells.edges[cells.start[0] : cells.start[1]]
    values = np.array(
        [[np.nan], [edges[0] - 1], [edges[0]], [np.nextafter(edges[1], -np.inf)], [edges[1]], [edges[-1]]]
    )
    found = find_cells(cells, np.repeat(values, 2, axis=1))[:, 0]
    assert found[0].tolist() == [0, 1, 2, 2, 3, 1 + len(edges)]
    assert found[1].tolist() == [0, 1, 1, 1, 2, 1 + len(edges) // 2]
    assert found[2].tolist() == [0, 1, 1, 1, 1, 1 + len(edges) // 4]
