"""Reads subscriptions and publications from files, for use without a service.

subscriptions   JSON lines {"id": 7, "filter": "volume > 300000"} or Parquet with columns id and filter;
                encrypted: Parquet with columns id and tests (a list of vectors), as `lavant encrypt` writes
publications    JSON lines or Parquet, a column for each attribute; encrypted: Parquet with @point
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.files import local_path
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.json_lines import from_json_lines
from lavant.core.publications.publication import Rejected
from lavant.pipeline.stream.records import accept

ROWS_AT_ONCE = 4096
FILTERS_AT_ONCE = 100_000
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


class SubscriptionLine(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    filter: str


def load_subscriptions(path: Path, directory: Path, *, scheme: str, slices: int) -> SliceStore:
    """A new slice store with the subscriptions of a file."""
    path = local_path(path)
    store = SliceStore.create(directory, scheme=scheme, slices=slices)
    read = _encrypted_subscriptions if scheme == "encrypted" else _plain_subscriptions
    for ids, filters in read(path):
        store.add(ids, filters)
    return store


def load_publications(path: Path, log: LogWriter, *, scheme: str) -> list[Rejected]:
    """Append the publications of a file, or of all files of a directory, to a log; return those refused, with
    reasons.
    """
    rejected: list[Rejected] = []
    for file in files_of(local_path(path)):
        for records in _publication_records(file, scheme, rejected):
            if records.num_rows:
                log.append(records)
    return rejected


def _plain_subscriptions(path: Path) -> Iterator[tuple[Any, list[Filter]]]:
    rows: list[SubscriptionLine] = []
    for number, row in enumerate(_subscription_rows(path)):
        try:
            rows.append(msgspec.convert(row, SubscriptionLine))
        except msgspec.ValidationError as error:
            raise InvalidValue(f"{path}, subscription {number + 1}: {error}; expected id and filter") from None
        if len(rows) == FILTERS_AT_ONCE:
            yield _parsed(path, rows)
            rows = []
    if rows:
        yield _parsed(path, rows)


def _parsed(path: Path, rows: list[SubscriptionLine]) -> tuple[list[int], list[Filter]]:
    filters = []
    for row in rows:
        try:
            filters.append(Filter.parse(row.filter))
        except InvalidValue as error:
            raise InvalidValue(f"{path}, subscription {row.id}: {error}") from None
    return [row.id for row in rows], filters


def _subscription_rows(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        for batch in _parquet(path, "id", "filter"):
            yield from batch.to_pylist()
        return
    with _open(path) as file:
        for number, line in enumerate(file):
            if line.strip():
                try:
                    yield msgspec.json.decode(line)
                except UNDECODABLE as error:
                    raise InvalidValue(f"{path}, line {number + 1}: not JSON: {error}") from None


def _encrypted_subscriptions(path: Path) -> Iterator[tuple[Any, EncryptedFilters]]:
    if path.suffix != ".parquet":
        raise InvalidValue(f"encrypted subscriptions are a Parquet file of `lavant encrypt`, got {path}")
    for batch in _parquet(path, "id", "tests"):
        try:
            tests = np.array(batch.column("tests").to_pylist(), np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{path}: the tests of encrypted subscriptions are not all alike: {error}") from None
        yield batch.column("id").to_numpy(), EncryptedFilters(tests)


def _publication_records(path: Path, scheme: str, rejected: list[Rejected]) -> Iterator[pa.RecordBatch]:
    first = 0
    if path.suffix == ".parquet":
        if scheme == "plain":
            _check_columns(path)
        for batch in _parquet(path):
            accepted = accept(scheme, batch)
            rejected += [Rejected(first + row, f"{path.name}", reason) for row, reason in accepted.rejected.items()]
            first += batch.num_rows
            yield batch.take(pa.array(accepted.rows)) if accepted.rejected else batch
        return
    if scheme == "encrypted":
        raise InvalidValue(f"encrypted publications are a Parquet file of `lavant encrypt`, got {path}")
    with _open(path) as file:
        while lines := file.readlines(1 << 20):
            refused: list[Rejected] = []
            lines_batch = from_json_lines(b"".join(lines), rejected=refused)
            rejected += [Rejected(first + row, content, reason) for row, content, reason in refused]
            first += len(lines)
            yield lines_batch.records


def _check_columns(path: Path) -> None:
    """Refuse a whole file if every row would be refused, for the name or type of a column."""
    try:
        empty = pq.read_schema(path).empty_table()
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidValue(f"cannot read {path}: {error}") from None
    try:
        PublicationBatch(pa.RecordBatch.from_arrays([c.combine_chunks() for c in empty.columns], schema=empty.schema))
    except InvalidValue as error:
        raise InvalidValue(f"{path}: {error}") from None


def _parquet(path: Path, *columns: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with these columns or with all."""
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidValue(f"cannot read {path}: {error}") from None
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise InvalidValue(f"{path} has no column {missing[0]!r}, only {', '.join(file.schema_arrow.names)}")
    with file:
        yield from file.iter_batches(ROWS_AT_ONCE, columns=list(columns) if columns else None)


def files_of(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (*JSON_SUFFIXES, ".parquet"))
        if not files:
            raise InvalidValue(f"{path} holds no {', '.join(JSON_SUFFIXES)} or .parquet file")
        return files
    if not path.exists():
        raise InvalidValue(f"there is no file {path}")
    return [path]


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror}") from None
