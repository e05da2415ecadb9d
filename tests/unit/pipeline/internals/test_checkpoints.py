"""The offsets of a batch, as in Spark's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.core.errors import CorruptSnapshot
from lavant.pipeline.internals.checkpoints import (
    BatchOffsets,
    SourceOffset,
    batch_offsets,
    last_committed,
    last_planned,
)


def offsets(checkpoint: Path, batch: int, end: int) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"offset": {end}}}')


def test_a_batch_begins_where_the_one_before_ended(tmp_path: Path) -> None:
    offsets(tmp_path, 0, 40)
    offsets(tmp_path, 1, 45)
    assert batch_offsets(tmp_path, 1) == BatchOffsets(40, 45)


def test_the_first_batch_begins_where_the_stream_does(tmp_path: Path) -> None:
    offsets(tmp_path, 0, 40)
    assert batch_offsets(tmp_path, 0, 7) == BatchOffsets(7, 40)


@pytest.mark.parametrize("content", ["", "v1\n{}", 'v1\n{}\n{"offset": "many"}', "v1\n{}\n-"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, content: str) -> None:
    offsets(tmp_path, 0, 40)
    (tmp_path / "offsets" / "1").write_text(content)
    with pytest.raises(CorruptSnapshot, match="offsets/1 does not say where batch 1 ends"):
        batch_offsets(tmp_path, 1)


def test_only_batches_that_spark_has_committed_count(tmp_path: Path) -> None:
    assert last_committed(tmp_path) is None
    (tmp_path / "commits").mkdir()
    for batch, end in enumerate((40, 45, 50)):
        offsets(tmp_path, batch, end)
    for name in ("0", "1", ".2.tmp"):
        (tmp_path / "commits" / name).touch()
    assert last_committed(tmp_path) == 45


def test_offsets_say_of_which_log_they_are_since_they_do(tmp_path: Path) -> None:
    assert last_planned(tmp_path) is None
    offsets(tmp_path, 0, 40)
    assert last_planned(tmp_path) == SourceOffset(40)
    (tmp_path / "offsets" / "1").write_text('v1\n{}\n{"offset": 45, "log": "abc"}')
    assert last_planned(tmp_path) == SourceOffset(45, "abc")
    assert batch_offsets(tmp_path, 1) == BatchOffsets(40, 45, "abc")
