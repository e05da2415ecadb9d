"""Reads subscriptions and publications from files, local or at URIs, for use without a service.

subscriptions   JSON lines {"id": 7, "filter": "volume > 300000"} or Parquet with columns id and filter;
                encrypted: Parquet with columns id and tests (a list of vectors), as `lavant encrypt` writes
publications    JSON lines or Parquet, a column for each attribute; encrypted: Parquet with @point
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
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
from lavant.broker.storage.objects import open_storage
from lavant.broker.storage.objects.files import StoredFile
from lavant.core.errors import UNDECODABLE, InvalidValue
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


def load_subscriptions(place: str | Path, store: str | Path, *, scheme: str, slices: int) -> SliceStore:
    """A new slice store with the subscriptions of a file."""
    file = StoredFile.at(place)
    made = SliceStore.create(store, scheme=scheme, slices=slices)
    read = _encrypted_subscriptions if scheme == "encrypted" else _plain_subscriptions
    for ids, filters in read(file):
        made.add(ids, filters)
    return made


def load_publications(place: str | Path, log: LogWriter, *, scheme: str) -> list[Rejected]:
    """Append the publications of a file, or of all files of a directory, to a log; return those refused, with
    reasons.
    """
    rejected: list[Rejected] = []
    for file in files_of(place):
        for records in _publication_records(file, scheme, rejected):
            if records.num_rows:
                log.append(records)
    return rejected


def _plain_subscriptions(file: StoredFile) -> Iterator[tuple[Any, list[Filter]]]:
    rows: list[SubscriptionLine] = []
    for number, row in enumerate(_subscription_rows(file)):
        try:
            rows.append(msgspec.convert(row, SubscriptionLine))
        except msgspec.ValidationError as error:
            raise InvalidValue(f"{file}, subscription {number + 1}: {error}; expected id and filter") from None
        if len(rows) == FILTERS_AT_ONCE:
            yield _parsed(file, rows)
            rows = []
    if rows:
        yield _parsed(file, rows)


def _parsed(file: StoredFile, rows: list[SubscriptionLine]) -> tuple[list[int], list[Filter]]:
    filters = []
    for row in rows:
        try:
            filters.append(Filter.parse(row.filter))
        except InvalidValue as error:
            raise InvalidValue(f"{file}, subscription {row.id}: {error}") from None
    return [row.id for row in rows], filters


def _subscription_rows(file: StoredFile) -> Iterator[Any]:
    if file.suffix == ".parquet":
        for batch in _parquet(file, "id", "filter"):
            yield from batch.to_pylist()
        return
    with open_input(file) as lines:
        for number, line in enumerate(lines):
            if line.strip():
                try:
                    yield msgspec.json.decode(line)
                except UNDECODABLE as error:
                    raise InvalidValue(f"{file}, line {number + 1}: not JSON: {error}") from None


def _encrypted_subscriptions(file: StoredFile) -> Iterator[tuple[Any, EncryptedFilters]]:
    if file.suffix != ".parquet":
        raise InvalidValue(f"encrypted subscriptions are a Parquet file of `lavant encrypt`, got {file}")
    for batch in _parquet(file, "id", "tests"):
        try:
            tests = np.array(batch.column("tests").to_pylist(), np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{file}: the tests of encrypted subscriptions are not all alike: {error}") from None
        yield batch.column("id").to_numpy(), EncryptedFilters(tests)


def _publication_records(file: StoredFile, scheme: str, rejected: list[Rejected]) -> Iterator[pa.RecordBatch]:
    first = 0
    if file.suffix == ".parquet":
        if scheme == "plain":
            _check_columns(file)
        for batch in _parquet(file):
            accepted = accept(scheme, batch)
            rejected += [Rejected(first + row, f"{file.name}", reason) for row, reason in accepted.rejected.items()]
            first += batch.num_rows
            yield batch.take(pa.array(accepted.rows)) if accepted.rejected else batch
        return
    if scheme == "encrypted":
        raise InvalidValue(f"encrypted publications are a Parquet file of `lavant encrypt`, got {file}")
    with open_input(file) as opened:
        while lines := opened.readlines(1 << 20):
            refused: list[Rejected] = []
            lines_batch = from_json_lines(b"".join(lines), rejected=refused)
            rejected += [Rejected(first + row, content, reason) for row, content, reason in refused]
            first += len(lines)
            yield lines_batch.records


def _check_columns(file: StoredFile) -> None:
    """Refuse a whole file if every row would be refused, for the name or type of a column."""
    with _open_parquet(file) as opened:
        empty = opened.schema_arrow.empty_table()
    try:
        PublicationBatch(pa.RecordBatch.from_arrays([c.combine_chunks() for c in empty.columns], schema=empty.schema))
    except InvalidValue as error:
        raise InvalidValue(f"{file}: {error}") from None


def _parquet(file: StoredFile, *columns: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with these columns or with all."""
    with _open_parquet(file) as opened:
        names = opened.schema_arrow.names
        missing = [name for name in columns if name not in names]
        if missing:
            raise InvalidValue(f"{file} has no column {missing[0]!r}, only {', '.join(names)}")
        yield from opened.iter_batches(ROWS_AT_ONCE, columns=list(columns) if columns else None)


@contextmanager
def _open_parquet(file: StoredFile) -> Iterator[pq.ParquetFile]:
    with open_input(file) as opened:
        try:
            parquet = pq.ParquetFile(opened)
        except (OSError, pa.ArrowInvalid) as error:
            raise InvalidValue(f"cannot read {file}: {error}") from None
        with parquet:
            yield parquet


def files_of(place: str | Path) -> list[StoredFile]:
    """A file, or all files of a folder."""
    file = StoredFile.at(place)
    if file.exists():
        return [file]
    storage = open_storage(place)
    files = [name for name in storage.names() if "/" not in name]
    chosen = [StoredFile(storage, name) for name in files if Path(name).suffix in (*JSON_SUFFIXES, ".parquet")]
    if chosen:
        return chosen
    folder = storage.path("any")
    if files or (folder is not None and folder.parent.is_dir()):
        raise InvalidValue(f"{storage.uri} holds no {', '.join(JSON_SUFFIXES)} or .parquet file")
    raise InvalidValue(f"there is no file {file}")


def open_input(file: StoredFile) -> BufferedReader:
    """The content of a file; raises in one line if it cannot be read."""
    try:
        return file.open()
    except OSError as error:
        raise InvalidValue(f"cannot read {file}: {error.strerror}") from None
