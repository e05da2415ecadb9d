"""`lavant stream` before Spark starts: the former name of an option, and what is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from lavant.broker.slices import SliceStore
from lavant.cli import commands
from lavant.cli.common import set_quiet
from lavant.cli.stream import show
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.pipeline.stream.driver import StreamResult


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.jsonl").write_text('{"id": 1, "filter": "x = 1"}\n')
    Path("p.jsonl").write_text('{"x": 1}\n')
    Path("empty").mkdir()
    return tmp_path


@pytest.fixture
def without_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Spark cannot start: a command that tries to says so, and not what it was to say before."""
    monkeypatch.setenv("JAVA_HOME", str(home / "empty"))
    return home


@pytest.mark.parametrize(
    ("options", "scheme"),
    [([], "plain"), (["--scheme", "encrypted"], "encrypted"), (["--engine", "encrypted"], "encrypted")],
)
def test_engine_is_still_understood_as_scheme(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], scheme: str
) -> None:
    given: dict[str, Any] = {}

    def stream(spark: Any, **settings: Any) -> Any:
        given.update(settings)
        return SimpleNamespace(
            publications=1, subscriptions=1, seconds=1.0, batches=1, notifications="n", rejected=0, matched_none=False
        )

    session = SimpleNamespace(stop=lambda: None, sparkContext=SimpleNamespace(master="local[1]"))
    monkeypatch.setattr("lavant.pipeline.session.spark_session", lambda *_, **__: session)
    monkeypatch.setattr("lavant.pipeline.stream.driver.stream", stream)
    words = ["stream", "--subscriptions", "s.jsonl", "--input", "p.jsonl", "--output", "o", *options]
    assert (CliRunner().invoke(commands, words).exit_code, given["scheme"]) == (0, scheme)


FILES = {"--subscriptions": "s.jsonl", "--input": "p.jsonl", "--output": "out"}
TOPICS = {"--input": "kafka://127.0.0.1:1/a", "--output": "kafka://127.0.0.1:1/b", "--work": "work"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--subscriptions": "none.jsonl"}, "cannot read none.jsonl: No such file or directory"),
        (
            {"--subscriptions": "empty"},
            "empty is a directory and no slice store; give a file of subscriptions, or a store",
        ),
        ({"--input": "none.jsonl"}, "there is no file none.jsonl"),
        ({"--input": "none/log"}, "there is no file none/log"),
        ({"--input": "empty"}, "empty holds no .jsonl, .ndjson, .json or .parquet file"),
        ({"--output": "p.jsonl"}, "p.jsonl cannot be a directory: p.jsonl is a file; choose another"),
        ({"--output": "p.jsonl/out"}, "p.jsonl/out cannot be a directory: {home}/p.jsonl is a file; choose another"),
        ({**TOPICS, "--subscriptions": "none.jsonl"}, "cannot read none.jsonl: No such file or directory"),
        ({**TOPICS, "--work": "p.jsonl"}, "p.jsonl cannot be a directory: p.jsonl is a file; choose another"),
    ],
)
def test_what_is_missing_is_named_before_spark_starts(
    without_java: Path, changed: dict[str, str], message: str
) -> None:
    words = [word for pair in {**FILES, **changed}.items() for word in pair]
    result = CliRunner().invoke(commands, ["stream", *words])
    assert isinstance(result.exception, InvalidValue)
    assert str(result.exception) == message.format(home=without_java)
    assert not Path("out").exists()


def test_stores_and_logs_pass(without_java: Path) -> None:
    SliceStore.create(without_java / "store", scheme="plain", slices=1)
    (without_java / "log").mkdir()
    (without_java / "log" / "00000000000000000000.log").touch()
    given = {"--subscriptions": "store", "--input": "log", "--output": "deep/out"}
    result = CliRunner().invoke(commands, ["stream", *(word for pair in given.items() for word in pair)])
    assert isinstance(result.exception, MissingComponent)
    assert "Spark needs Java" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spark", "pack", "x.zip"], "Spark recognises archives by their name; 'x.zip' must end in .tar.gz"),
        (["spark", "pack", "no/x.tar.gz"], "cannot write no/x.tar.gz: no is no directory that you may write to"),
        (["reproduce", "balancing", "--quotes", "none", "--master", "local[1]"], "cannot read none: No such file or"),
        (["reproduce", "e-streamhub", "9", "--trades", "none"], "cannot read none: No such file or directory"),
    ],
)
def test_other_commands_name_what_is_missing_before_their_work(
    without_java: Path, words: list[str], message: str
) -> None:
    result = CliRunner().invoke(commands, words)
    assert isinstance(result.exception, InvalidValue)
    assert str(result.exception).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "p.jsonl"], "lavant: cannot make p.jsonl: File exists; choose another output\n"),
        (
            ["--output", "o", "--path", "none"],
            "lavant: there is no directory {home}/none for the module of function 'a:b'\n",
        ),
    ],
)
def test_a_sweep_names_what_is_missing_before_spark_starts(
    without_java: Path, options: list[str], message: str
) -> None:
    Path("sweep.toml").write_text(f'function = "{"a:b" if "--path" in options else "math:sqrt"}"\n[grid]\nx = [1]\n')
    result = CliRunner().invoke(commands, ["sweep", "sweep.toml", *options])
    assert (result.exit_code, result.stderr) == (101, message.format(home=without_java))


def test_a_quiet_stream_prints_only_what_was_refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = StreamResult(
        publications=2,
        rejected=1,
        reasons={"not JSON": 1},
        matched_none=False,
        subscriptions=1,
        batches=1,
        seconds=1.0,
        notifications="out/notifications",
    )
    show(result, rejected="out/rejected.jsonl")
    loud = capsys.readouterr().out.splitlines()
    assert loud[:2] == ["2 publications against 1 subscription in 1.0 s (1 batch)", "notifications: out/notifications"]
    set_quiet(True)
    show(result, rejected="out/rejected.jsonl")
    set_quiet(False)
    assert capsys.readouterr().out.splitlines() == loud[2:]
