"""Sweep results in a directory: Parquet files, one per chunk, each written atomically.

A row is a task: its id, replication, seed, seconds and error, then a column for each parameter, then one for each
figure. Numbers that functions return are doubles, whether written 2 or 2.0, so that all files have the same types.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lavant.core.errors import InvalidValue
from lavant.core.files import local_path
from lavant.pipeline.sweep.calls import SweepTaskResult
from lavant.pipeline.sweep.scenario import Sweep

_FUNCTION_KEY = b"lavant.sweep.function"
_TYPES: dict[type, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_OWN = {"id": pa.string(), "replication": pa.int64(), "seed": pa.int64(), "seconds": pa.float64(), "error": pa.string()}


class ResultStore:
    """The results of one function in one directory. `done` are the ids of tasks that need not be computed."""

    def __init__(self, directory: Path, sweep: Sweep, *, fresh: bool = False) -> None:
        directory = local_path(directory)
        self.directory = directory
        self._function = sweep.function
        self._parameters = {name: _TYPES[kind] for name, kind in sweep.parameter_types.items()}
        self._types: dict[str, pa.DataType] = dict(self._parameters)
        self.done: set[str] = set()
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidValue(f"cannot make {directory}: {error.strerror}; choose another output") from None
        self._outdated = parts(directory) if fresh else []
        for part in [] if fresh else parts(directory):
            self._take(part)

    def append(self, results: Sequence[SweepTaskResult]) -> list[SweepTaskResult]:
        """Write results as one file and return them. Those with figures of other types than before become failures."""
        while self._outdated:  # not before there is something to put in their place
            self._outdated.pop().unlink(missing_ok=True)
        written = [self._fitting(result) for result in results]
        rows = [_row(result) for result in written]
        schema = pa.schema([*_OWN.items(), *self._types.items()], metadata={_FUNCTION_KEY: self._function})
        _write(pa.Table.from_pylist(rows, schema=schema), self.directory / _part_name(written))
        self.done.update(result.task.id for result in written if result.error is None)
        return written

    def _take(self, part: Path) -> None:
        """Count a file of an earlier run as done, without its failures: they are tried again."""
        table = pq.read_table(part)
        function = (table.schema.metadata or {}).get(_FUNCTION_KEY, b"").decode()
        if function != self._function:
            raise InvalidValue(
                f"{self.directory} holds results of {function or 'something else'!r}, not of {self._function!r}; "
                "choose another output, or --fresh to delete them"
            )
        for field in table.schema:
            if field.name not in _OWN:
                self._check_type(field)
        good = table.filter(pc.is_null(table.column("error")))
        if good.num_rows == 0:
            part.unlink()
        elif good.num_rows < table.num_rows:
            _write(good, part)
        self.done.update(good.column("id").to_pylist())

    def _check_type(self, field: pa.Field) -> None:
        known = self._types.setdefault(field.name, field.type)
        if known != field.type:
            raise InvalidValue(
                f"{self.directory} holds {field.name!r} as {field.type}, this sweep has it as {known}; "
                "choose another output, or --fresh to delete them"
            )

    def _fitting(self, result: SweepTaskResult) -> SweepTaskResult:
        for name, value in result.figures.items():
            if value is None:
                continue
            mine = _TYPES[type(value)]
            known = self._types.setdefault(name, mine)
            if known != mine:
                problem = f"the function returned {name!r} as {mine}, for other tasks as {known}; return one type"
                return msgspec.structs.replace(result, figures={}, error=problem)
        return result


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("part-*.parquet"))


def read_results(directory: Path) -> pa.Table:
    """All results of a directory as one table; null where a task lacks a figure."""
    tables = [pq.read_table(part) for part in parts(directory)]
    if not tables:
        raise InvalidValue(f"{directory} holds no results (part-*.parquet)")
    return pa.concat_tables(tables, promote_options="default")


def _row(result: SweepTaskResult) -> dict[str, object]:
    task = result.task
    own = {
        "id": task.id,
        "replication": task.replication,
        "seed": task.seed,
        "seconds": result.seconds,
        "error": result.error,
    }
    return {**own, **task.parameters, **result.figures}


def _part_name(results: Sequence[SweepTaskResult]) -> str:
    """Named by content, so that two sweeps into one directory do not overwrite each other."""
    ids = hashlib.sha256("".join(result.task.id for result in results).encode())
    return f"part-{ids.hexdigest()[:24]}.parquet"


def _write(table: pa.Table, path: Path) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    pq.write_table(table, unfinished)
    unfinished.replace(path)
