"""Commands refuse URIs in place of paths, and URIs of unknown kinds, before they do anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.cli.commands import prepare
from lavant.core.errors import InvalidValue

FILES = ["--subscriptions", "s", "--input", "p", "--output", "o"]


@pytest.mark.parametrize(
    "line",
    [
        ["serve", "--data", "s3://bucket/data"],
        ["sweep", "s3://bucket/s.toml", "--output", "o"],
        ["workflow", "check", "gs://b/w.toml"],
        ["keygen", "hdfs://n/key", "--attribute", "price:0:1:1"],
    ],
)
def test_a_uri_is_refused_and_nothing_is_written(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failure = CliRunner().invoke(commands, line).exception
    assert isinstance(failure, InvalidValue)
    assert "is a URI" in str(failure)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", [1, 3, 5])
@pytest.mark.parametrize("uri", ["foo://n/x", "s3a://bucket/x"])
def test_a_stream_refuses_storage_that_nobody_knows_and_starts_nothing(
    place: int, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failure = CliRunner().invoke(commands, ["stream", *FILES[:place], uri, *FILES[place + 1 :]]).exception
    assert isinstance(failure, InvalidValue)
    assert "there is no storage" in str(failure)
    assert list(tmp_path.iterdir()) == []


def test_a_check_refuses_storage_that_nobody_knows_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failure = CliRunner().invoke(commands, ["spark", "check", "here", "foo://n/x"]).exception
    assert isinstance(failure, InvalidValue)
    assert "there is no storage foo://" in str(failure)
    assert list(tmp_path.iterdir()) == []


def test_all_kinds_of_parameters_are_looked_at() -> None:
    seen: list[object] = []
    below, above = typer.Typer(), typer.Typer()

    @below.command()
    def first(a: Path, *, b: Annotated[Path | None, typer.Option()] = None, text: str = "") -> None:
        seen.extend((a, b, text))

    @below.command()
    def second() -> None:
        pass

    above.add_typer(below, name="below")
    prepare(above)
    run = CliRunner().invoke
    assert run(above, ["below", "first", "file:///x", "--text", "s3://b"]).exit_code == 0
    assert seen == [Path("/x"), None, "s3://b"]
    assert isinstance(run(above, ["below", "first", "x", "--b", "s3://b"]).exception, InvalidValue)
