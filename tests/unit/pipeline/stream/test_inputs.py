"""Subscriptions and publications from files: what is loaded, and what is said of what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.broker.slices.small_stores import expected, read, wants

from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.errors import InvalidValue
from lavant.core.publications.publication import Rejected
from lavant.pipeline.stream import inputs
from lavant.pipeline.stream.inputs import load_publications, load_subscriptions

NAN = float("nan")


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def publications(path: Path, scheme: str = "plain") -> tuple[list[dict[str, Any]], list[Rejected]]:
    """What a file leaves in a log, and what was refused."""
    directory = path.parent / "log"
    with LogWriter(directory, durable=False) as log:
        rejected = load_publications(path, log, scheme=scheme)
    reader = LogReader(directory)
    return [row for slab in reader.read(0, reader.end()) for row in slab.records.to_pylist()], rejected


def subscriptions(path: Path, scheme: str = "plain") -> Path:
    load_subscriptions(path, path.parent / "store", scheme=scheme, slices=3)
    return path.parent / "store"


def test_subscriptions_come_from_json_lines_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text('{"id": 7, "filter": "x = 1"}\n\n{"id": 9, "filter": "x = 2"}\n')
    assert read(subscriptions(path)) == expected({7: 1, 9: 2})


def test_subscriptions_come_from_parquet_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "FILTERS_AT_ONCE", 2)
    monkeypatch.setattr(inputs, "ROWS_AT_ONCE", 3)
    path = parquet(tmp_path / "s.parquet", {"id": [1, 2, 3, 4, 5], "filter": [f"x = {n}" for n in (0, 1, 2, 3, 4)]})
    assert read(subscriptions(path)) == expected({1: 0, 2: 1, 3: 2, 4: 3, 5: 4})


def test_encrypted_subscriptions_come_from_parquet(tmp_path: Path) -> None:
    tests = wants("encrypted", [1, 2]).tests.tolist()
    assert read(subscriptions(parquet(tmp_path / "s.parquet", {"id": [7, 9], "tests": tests}), "encrypted")) == (
        expected({7: 1, 9: 2})
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1, "filter": "x = 1"}\n{"id": 2', "line 2: not JSON"),
        ('{"id": "one", "filter": "x = 1"}', "subscription 1: .*expected id and filter"),
        ('{"id": 1, "filter": "x = 1", "more": 1}', "subscription 1: .*more.*expected id and filter"),
        ('{"id": 4, "filter": "x ="}', "subscription 4: "),
    ],
)
def test_a_line_that_is_no_subscription_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidValue, match=message):
        subscriptions(path)


@pytest.mark.parametrize(
    ("scheme", "columns", "message"),
    [
        ("plain", {"id": [1], "text": ["x = 1"]}, "has no column 'filter', only id, text"),
        ("encrypted", {"id": [1], "filter": ["x = 1"]}, "has no column 'tests', only id, filter"),
        ("encrypted", {"id": [1, 2], "tests": [[[1.0, 2.0]], [[1.0, 2.0, 3.0]]]}, "are not all alike"),
    ],
)
def test_a_parquet_file_of_another_kind_is_refused(
    tmp_path: Path, scheme: str, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        subscriptions(parquet(tmp_path / "s.parquet", columns), scheme)


@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValue, match=f"cannot read .*{name}"):
        subscriptions(tmp_path / name)
    with pytest.raises(InvalidValue, match=f"there is no file .*{name}"):
        publications(tmp_path / name)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_text("no")
    with pytest.raises(InvalidValue, match=r"cannot read .*p.parquet"):
        publications(tmp_path / "p.parquet")


def test_publications_come_from_json_lines_and_refused_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"a": 1}\n\n{"a": [2]}\n{"a": 3}\nnothing\n')
    rows, rejected = publications(path)
    assert [row["a"] for row in rows] == [1, 3]
    assert [(each.row, each.content) for each in rejected] == [(2, '{"a": [2]}'), (4, "nothing")]


def test_refused_rows_of_a_parquet_file_are_numbered_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "ROWS_AT_ONCE", 2)
    rows, rejected = publications(parquet(tmp_path / "p.parquet", {"a": [1.0, NAN, 2.0, 3.0, NAN, NAN, 4.0]}))
    assert [row["a"] for row in rows] == [1, 2, 3, 4]
    assert [(each.row, each.content) for each in rejected] == [(1, "p.parquet"), (4, "p.parquet"), (5, "p.parquet")]


def test_all_files_of_a_directory_are_loaded_by_name(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "b.ndjson").write_text('{"a": 2}\n')
    parquet(place / "a.parquet", {"a": [1]})
    (place / "notes.txt").write_text("not for us")
    assert [row["a"] for row in publications(place)[0]] == [1, 2]


def test_a_directory_without_such_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InvalidValue, match=r"holds no \.jsonl, .* file"):
        publications(tmp_path / "in")


@pytest.mark.parametrize("load", [publications, subscriptions])
def test_encrypted_lines_of_json_are_refused(tmp_path: Path, load: Any) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("{}\n")
    with pytest.raises(InvalidValue, match="a Parquet file of `lavant encrypt`"):
        load(path, "encrypted")
