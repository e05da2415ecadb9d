"""A write to a log is there as a whole or not at all, wherever its commit is interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lavant.broker.storage.disks.locks import lock_directory
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.objects import LocalStorage
from lavant.core.errors import CorruptSnapshot, LimitExceeded, StorageLocked
from lavant.pipeline.sources import log_writer
from lavant.pipeline.sources.log_writer import LogTaskWriter, StagedBlocks

SCHEMA = StructType([StructField("n", LongType())])


class Killed(BaseException):
    """Stands for kill -9: no handler of the program catches it."""


def writer(place: Path) -> LogTaskWriter:
    return LogTaskWriter({"path": str(place)}, SCHEMA, False, "lavant_log")


def staged(of: LogTaskWriter, first: int, job: str = "query") -> list[StagedBlocks]:
    """Three tasks with two blocks of five rows each."""
    tasks = []
    for task in range(3):
        numbers = [list(range(start, start + 5)) for start in (first + 10 * task, first + 10 * task + 5)]
        made = of.stage(iter([pa.record_batch({"n": each}) for each in numbers]), f"{job}-{first}-{task}")
        content = b"".join(LocalStorage(Path(of.place) / "writes").read(name) for name in made.names)
        tasks.append(StagedBlocks(made.rows, job, content=content))
    return tasks


def numbers_in(place: Path) -> list[int]:
    log = LogReader(place)
    return [n for batch in log.read(0, log.end()) for n in batch.records.column("n").to_pylist()]


def test_a_commit_killed_at_any_step_is_completed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each effect on the disk in turn, until a commit gets through without being killed."""
    steps = 0
    while True:
        place = tmp_path / str(steps)
        first = writer(place)
        first.commit([*staged(first, 0)], 0)
        following = staged(first, 100)
        left = [steps]

        def then_killed(function: Any, left: list[int] = left) -> Any:
            def run(*arguments: Any, **named: Any) -> Any:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return function(*arguments, **named)

            return run

        with monkeypatch.context() as patch:
            for owner, name in (
                *((LogWriter, each) for each in ("append",)),
                *((LocalStorage, each) for each in ("write", "create", "remove")),
            ):
                patch.setattr(owner, name, then_killed(getattr(owner, name)))
            try:
                first.commit([*following], 1)
                survived = True
            except Killed:
                survived = False
        again = writer(place)
        again.commit([*staged(again, 100)], 1)  # the batch is repeated, as Spark does
        again.commit([*staged(again, 200)], 2)
        assert numbers_in(place) == [*range(30), *range(100, 130), *range(200, 230)]
        if survived:
            break
        steps += 1
    assert steps > 8


def test_tasks_that_do_not_reach_the_log_return_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = writer(tmp_path / "log")
    of.identity = "another"  # as where the path is a directory of the executor's own
    found = of.stage(iter([pa.record_batch({"n": [1, 2]})]), "job")
    assert (found.rows, found.names, found.content is not None) == (2, (), True)
    again = writer(tmp_path / "log")
    again.commit([None, found, StagedBlocks(0, "job")])
    assert numbers_in(tmp_path / "log") == [1, 2]
    monkeypatch.setattr(log_writer, "RETURNED_BYTES_MAX", 10)
    with pytest.raises(LimitExceeded, match="repartition the table"):
        of.stage(iter([pa.record_batch({"n": [1, 2]})]), "job")


def test_large_partitions_are_staged_in_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "PART_BYTES", 1000)
    of = writer(tmp_path / "log")
    made = of.stage(iter([pa.record_batch({"n": list(range(n, n + 100))}) for n in range(0, 500, 100)]), "job")
    assert len(made.names) == 5
    of.commit([made])
    assert numbers_in(tmp_path / "log") == list(range(500))


def test_a_log_has_one_writer(tmp_path: Path) -> None:
    of = writer(tmp_path / "log")
    made = of.stage(iter([pa.record_batch({"n": [1]})]), "job")
    (tmp_path / "log" / "writes").mkdir(exist_ok=True)
    lock_directory(tmp_path / "log" / "writes")
    with pytest.raises(StorageLocked):
        of.commit([made])


def test_another_writer_after_an_interrupted_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = writer(tmp_path / "log")
    made = staged(of, 0)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(log_writer, "_blocks", killed)
        with pytest.raises(Killed):
            of.commit([*made])
    with LogWriter(tmp_path / "log") as log:
        log.append(pa.record_batch({"n": [7, 8]}))
    with pytest.raises(CorruptSnapshot, match="another program has written"):
        of.commit([*staged(of, 100)])
