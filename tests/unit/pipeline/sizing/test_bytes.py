"""The constants that are bytes, against what the stream's own formats take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lavant.broker.matching import Matches
from lavant.broker.matching.runs import Runs
from lavant.pipeline.operators.exchange import MatchedBlock, SegmentKey
from lavant.pipeline.operators.parts import write_part
from lavant.pipeline.sizing.constants import PipelineConstants

CONSTANTS = PipelineConstants()
PUBLICATIONS = 4096


def block(publications: int, *, matches: int = 0, runs: int = 0, names: bool = False) -> MatchedBlock:
    """Every publication has so many ids and so many runs."""
    offsets = np.arange(publications + 1, dtype=np.int64) * matches
    gaps = np.random.default_rng(1).integers(100, 8000, (publications, matches), np.uint32)
    ids = np.cumsum(gaps, axis=1, dtype=np.uint32).ravel()
    each = np.arange(publications * runs, dtype=np.uint32)
    return MatchedBlock(
        0,
        publications,
        0,
        [(SegmentKey(0, 0), Runs(each // max(1, runs), each, each + np.uint32(1)))] if runs else [],
        Matches(offsets, ids),
        [],
        pa.array([f"quote-{number:08d}" for number in range(publications)]) if names else None,
        [],
    )


def shuffled(publications: int, **content: int) -> int:
    return len(block(publications, **content).to_bytes())  # type: ignore[arg-type]


def test_a_match_a_run_and_a_list_take_as_many_bytes_in_the_shuffle_as_the_constants_say() -> None:
    empty = shuffled(0)
    lists = shuffled(PUBLICATIONS)
    header_growth = 16  # counts of several digits
    assert 0 <= lists - empty - PUBLICATIONS * CONSTANTS.list_bytes.value <= header_growth
    ids = shuffled(PUBLICATIONS, matches=10) - lists
    assert ids == pytest.approx(10 * PUBLICATIONS * CONSTANTS.gap_bytes.value, rel=0.05)
    runs = shuffled(PUBLICATIONS, runs=3) - lists
    assert runs == pytest.approx(3 * PUBLICATIONS * CONSTANTS.run_bytes.value, rel=0.2)


def test_a_header_and_the_bytes_that_spark_adds_are_about_what_the_constant_says() -> None:
    """Spark adds the number of the exit task, lengths, and its own headers."""
    header = shuffled(1, runs=1) - CONSTANTS.list_bytes.value - CONSTANTS.run_bytes.value
    assert CONSTANTS.block_bytes.value / 4 < header < CONSTANTS.block_bytes.value


def part_bytes(matches: int) -> int:
    found = block(PUBLICATIONS, matches=matches, names=True)
    _, content = write_part(None, "part", [found], found.rest)
    assert content is not None
    return len(content)


def test_a_row_and_an_id_take_as_many_bytes_in_a_part_as_the_constants_say() -> None:
    few, many = part_bytes(10), part_bytes(110)
    an_id = (many - few) / PUBLICATIONS / 100
    assert an_id == pytest.approx(CONSTANTS.id_bytes.value, rel=0.1)
    a_row = few / PUBLICATIONS - 10 * an_id
    assert a_row == pytest.approx(CONSTANTS.row_bytes.value, rel=0.3)
