"""A log as rows of the schema that somebody gives, and refusals that reach him."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType

from lavant.broker.storage.log import LogWriter
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.sources.log import LogBatchReader, LogSource
from lavant.pipeline.sources.log_writer import RowSettings, publications_of
from lavant.pipeline.sources.notifications import NotificationSource
from lavant.pipeline.sources.subscriptions import SubscriptionSource
from lavant.pipeline.stream.block_source import BlockSource
from lavant.pipeline.stream.driver import start

TEXT = '{"publication":"p","x":1}'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    with LogWriter(tmp_path / "log") as writer:
        writer.append(PublicationBatch.from_dicts([{"publication": "p", "x": 1}]).records)
    return tmp_path / "log"


def schema(**types: str) -> StructType:
    made = StructType()
    for name, type in types.items():
        made.add(name, LongType() if type == "bigint" else StringType(), nullable=name != "offset")
    return made


@pytest.mark.parametrize(
    ("columns", "form", "row"),
    [
        ({"offset": "bigint", "publication": "string"}, None, [0, TEXT]),
        ({"publication": "string", "offset": "bigint"}, None, [TEXT, 0]),
        ({"publication": "string"}, None, [TEXT]),
        ({"publication": "string"}, "json", [TEXT]),
        ({"publication": "string"}, "columns", ["p"]),
        ({"publication": "string", "x": "bigint"}, None, ["p", 1]),
        ({"OFFSET": "bigint", "x": "string"}, None, [0, "1"]),
        ({"offset": "bigint"}, None, [0]),
        (
            {"x": "bigint"},
            "json",
            "rows=json has the columns 'offset' and 'publication', and the schema has 'x'; leave",
        ),
        ({"publication": "bigint"}, None, "column 'publication' of a log cannot be of type bigint; use string$"),
        ({"Offset": "string"}, None, "column 'Offset' of a log cannot be of type string; use bigint$"),
    ],
)
def test_a_schema_says_whether_publications_are_texts_or_columns(
    log: Path, columns: dict[str, str], form: str | None, row: list[Any] | str
) -> None:
    options = {"path": str(log)} | ({} if form is None else {"rows": form})
    if isinstance(row, str):
        with pytest.raises(InvalidValue, match=row):
            LogBatchReader(options, schema(**columns))
        return
    reader = LogBatchReader(options, schema(**columns))
    [batch] = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert batch.schema.names == list(columns)
    assert [list(each.values()) for each in batch.to_pylist()] == [row]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: LogSource({"path": path, "endingOffset": "5"}), "a stream has no endingOffset"),
        (lambda path: LogSource({"path": path, "rowsMax": "none"}), "option rowsMax is 'none'; give a number"),
        (lambda _: LogSource({}), "lavant_log needs a path or URI"),
        (
            lambda path: NotificationSource({"path": path}),
            "lavant_notifications has the columns batch bigint, .* leave",
        ),
        (lambda path: BlockSource({"path": path, "startingOffset": "x"}), "option startingOffset is 'x'"),
    ],
)
def test_a_stream_that_is_refused_says_so_at_the_first_call(
    log: Path, make: Callable[[str], Any], problem: str
) -> None:
    """What the making of a reader raises, Spark replaces by an error of its own."""
    reader = make(str(log)).streamReader(schema(offset="bigint", publication="string"))
    for call in (
        reader.prepareForTriggerAvailableNow,
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, ReadMaxRows(1)),
        lambda: reader.partitions({}, {}),
        lambda: list(reader.read(InputPartition(None))),
    ):
        with pytest.raises(InvalidValue, match=problem):
            call()


def test_tables_with_columns_of_their_own_take_no_schema(tmp_path: Path) -> None:
    for source in (SubscriptionSource({"path": str(tmp_path)}), NotificationSource({"path": str(tmp_path)})):
        with pytest.raises(InvalidValue, match=r"has the columns .*, got a schema with id string; leave it out"):
            source.reader(schema(id="string"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rowMax": "5"}, "a stream has the options rowsMax and startingOffset, got 'rowMax'$"),
        ({"ROWSMAX": "0"}, "option rowsMax is '0'; give a number, 1 or more"),
        ({"startingOffset": "first"}, "option startingOffset is 'first'"),
    ],
)
def test_a_stream_refuses_options_that_it_does_not_have(
    log: Path, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    no_spark: Any = None
    with pytest.raises(InvalidValue, match=problem):
        start(no_spark, log=log, subscriptions=tmp_path, output=tmp_path / "out", options=options)
    assert not (tmp_path / "out").exists()


def test_a_log_that_a_stream_waits_for_need_not_exist(tmp_path: Path) -> None:
    reader = LogSource({"path": str(tmp_path / "later")}).streamReader(schema(offset="bigint", x="bigint"))
    offset = reader.initialOffset()
    [partition] = reader.partitions(offset, reader.latestOffset(offset, ReadMaxRows(5)))
    assert list(reader.read(partition)) == []


def test_rows_with_large_types_are_written_as_others_are() -> None:
    rows = pa.record_batch(
        {
            "@id": pa.array(["a"], pa.large_string()),
            "@payload": pa.array([b"\0\xff"], pa.large_binary()),
            "s": pa.array(["x"], pa.large_string()),
            "n": pa.array([1]),
        }
    )
    written = publications_of(RowSettings(is_json=False, drops=False, offset="offset"), rows)
    assert written.to_pylist() == rows.to_pylist()
    assert written.schema.types == [pa.string(), pa.binary(), pa.string(), pa.int64()]
    texts = pa.record_batch({"publication": pa.array([None, '{"n":1}'], pa.large_string())})
    with pytest.raises(InvalidValue, match="a row is no publication: column 'publication' is NULL; nothing was"):
        publications_of(RowSettings(is_json=True, drops=False, offset="offset"), texts)
    assert publications_of(RowSettings(is_json=True, drops=True, offset="offset"), texts).to_pylist() == [{"n": 1}]
