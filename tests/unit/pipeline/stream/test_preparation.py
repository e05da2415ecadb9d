"""What a stream of files is made from: all of it or nothing, and only ever one input for an output."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.stream import preparation
from lavant.pipeline.stream.preparation import Prepared

GOOD = '{"id": 1, "filter": "x = 1"}\n'


class Home:
    """Input files, and what is made of them."""

    def __init__(self, directory: Path) -> None:
        self.subscriptions = directory / "s.jsonl"
        self.publications = directory / "p.jsonl"
        self.output = directory / "deep" / "out"
        self.subscriptions.write_text(GOOD)
        self.publications.write_text('{"x": 1}\n{"x": 2}\n')

    def prepare(self, **changed: Any) -> Prepared:
        given = {"scheme": "plain", "slices": 2, **changed}
        return preparation.prepare(self.subscriptions, self.publications, self.output, **given)

    def counts(self) -> tuple[int, int]:
        prepared = self.prepare()
        return SliceReader(prepared.store).version().subscriptions, LogReader(prepared.log).end()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_what_is_there_is_used_again(home: Home) -> None:
    first = home.prepare()
    identities = SliceReader(first.store).identity, LogReader(first.log).identity
    home.subscriptions.touch()
    home.publications = home.publications.rename(home.publications.with_name("p.jsonl"))
    assert home.prepare() == first
    assert (SliceReader(first.store).identity, LogReader(first.log).identity) == identities
    assert home.counts() == (1, 2)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("subscriptions", '{"id": 1, "filter": "x >"}\n', "subscription 1: expected a value"),
        ("subscriptions", GOOD + '{"id": 2', "line 2: not JSON"),
        ("publications", "[]\nno\n", r"p.jsonl: all 2 publications were refused, .*1 for: "),
    ],
)
def test_an_input_that_is_refused_leaves_nothing(home: Home, name: str, bad: str, message: str) -> None:
    good = getattr(home, name).read_text()
    getattr(home, name).write_text(bad)
    for _ in range(2):
        with pytest.raises(InvalidValue, match=message):
            home.prepare()
        assert not home.output.parent.exists()
    getattr(home, name).write_text(good)
    assert home.counts() == (1, 2)


def test_what_was_refused_with_other_inputs_beside_it_is_not_used(home: Home) -> None:
    """The subscriptions were good when the publications were refused, and have changed since."""
    home.output.mkdir(parents=True)
    (home.output / "notes.txt").write_text("mine")
    home.publications.write_text("no\n")
    with pytest.raises(InvalidValue):
        home.prepare()
    assert [path.name for path in home.output.rglob("*")] == ["notes.txt"]
    home.subscriptions.write_text(GOOD + '{"id": 2, "filter": "x = 2"}\n')
    home.publications.write_text('{"x": 5}\n')
    assert home.counts() == (2, 1)


def test_what_a_killed_process_left_is_made_anew(home: Home) -> None:
    home.prepare()
    (home.output / "work" / "inputs.json").unlink()
    home.subscriptions.write_text(GOOD + '{"id": 2, "filter": "x = 2"}\n')
    home.publications.write_text('{"x": 5}\n')
    assert home.counts() == (2, 1)


@pytest.mark.parametrize("name", ["subscriptions", "publications"])
def test_other_content_is_refused_and_changes_nothing(home: Home, name: str) -> None:
    home.prepare()
    before = {path: path.read_bytes() for path in home.output.rglob("*") if path.is_file()}
    path = getattr(home, name)
    good = path.read_text()
    path.write_text(good.replace("1", "3"))
    with pytest.raises(InvalidValue, match="holds the results of other inputs"):
        home.prepare()
    path.write_text(good)
    with pytest.raises(InvalidValue, match="holds the results of other inputs"):
        home.prepare(slices=3)
    assert {path: path.read_bytes() for path in home.output.rglob("*") if path.is_file()} == before
    assert home.counts() == (1, 2)


def test_a_directory_of_files_is_known_by_all_of_them(home: Home, tmp_path: Path) -> None:
    home.publications = tmp_path / "in"
    home.publications.mkdir()
    (home.publications / "a.jsonl").write_text('{"x": 1}\n')
    home.prepare()
    (home.publications / "notes.txt").write_text("not read")
    home.prepare()
    (home.publications / "b.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(InvalidValue, match="other inputs"):
        home.prepare()


def test_a_store_and_a_log_may_grow_but_not_be_others(home: Home, tmp_path: Path) -> None:
    home.subscriptions, home.publications = tmp_path / "store", tmp_path / "log"

    def make() -> None:
        SliceStore.create(home.subscriptions, slices=2).add([1], ["x = 1"])
        grow()

    def grow() -> None:
        with LogWriter(home.publications) as log:
            log.append(PublicationBatch.from_dicts([{"x": 1}]).records)

    make()
    assert home.prepare() == Prepared(home.subscriptions, home.publications, [])
    SliceStore.open(home.subscriptions).add([2], ["x = 2"])
    grow()
    assert home.counts() == (2, 2)
    for path in (home.subscriptions, home.publications):
        shutil.rmtree(path)
    make()
    with pytest.raises(InvalidValue, match="other inputs"):
        home.prepare()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1], "t": [datetime(2026, 1, 1)]}, r"column 't' is of type timestamp\[us\]; cast it"),
        ({"x": [1], "@t": [1]}, "'@t' starts with '@'"),
        ({"x": [float("nan")] * 3}, "all 3 publications were refused, 3 for: attribute 'x' is nan"),
    ],
)
def test_a_file_of_which_no_row_can_be_accepted_is_refused(home: Home, columns: dict[str, Any], message: str) -> None:
    home.publications = home.publications.with_suffix(".parquet")
    pq.write_table(pa.table(columns), home.publications)
    with pytest.raises(InvalidValue, match=message):
        home.prepare()
    pq.write_table(pa.table({"x": [1, 2]}), home.publications)
    assert home.counts() == (1, 2)


def test_reasons_come_with_what_was_accepted(home: Home) -> None:
    home.publications.write_text('{"x": 1}\nno\nno\n')
    for _ in range(2):
        assert len(home.prepare().refused) == 2
    refused = [json.loads(line) for line in (home.output / "rejected.jsonl").read_text().splitlines()]
    assert [line["row"] for line in refused] == [1, 2]


def test_an_output_of_an_earlier_version_is_named(home: Home) -> None:
    home.prepare()
    (home.output / "work" / "inputs.json").write_text('{"subscriptions": ["s", 1, 2], "publications": ["p", 1, 2]}')
    with pytest.raises(InvalidValue, match="of an earlier version of Lavant"):
        home.prepare()
