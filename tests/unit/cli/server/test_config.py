"""A file of options, and the commands that explain it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.cli.server.config import effective
from lavant.core.errors import InvalidValue


def written(path: Path, text: str) -> Path:
    file = path / "lavant.toml"
    file.write_text(text)
    return file


def shown(file: Path | None = None) -> dict[str, tuple[Any, str]]:
    return {name: (value, source) for name, value, source in effective(file)}


def test_every_option_tells_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAVANT_CONFIG", raising=False)
    file = written(tmp_path, 'port = 7500\ndata = "here"\nsqs-region = "eu-1"\n[limits]\nstreams_max = 7\n')
    rows = shown(file)
    assert rows["port"] == (7500, "file")
    assert rows["data"] == ("here", "file")
    assert rows["sqs_region"] == ("eu-1", "file")
    assert rows["host"] == ("127.0.0.1", "default")
    assert rows["limits.streams_max"] == (7, "file")
    assert rows["limits.connections_max"] == (10_000, "default")
    assert all(source == "default" for _, source in shown().values())


@pytest.mark.parametrize("text", ["public-host = 'queues.example'", "public-host = ['queues.example']"])
def test_an_option_that_may_be_repeated_is_one_value_or_a_list(tmp_path: Path, text: str) -> None:
    assert shown(written(tmp_path, f"memory = true\n{text}"))["public_host"] == (["queues.example"], "file")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("prot = 1", "did you mean 'port'"),
        ('port = "x"', "port: it must be a whole number .* got .x"),
        ("port = 70000", "port"),
        ("data = 'x'\n[limits]\nstream_max = 1", "did you mean 'streams_max'"),
        ("data = 'x'\n[limits]\nstreams_max = 0", "must be positive"),
        ("data = 'x'\n[limits]\nstreams_max = 'many'", "int"),
        ("data = 'x'\nlimits = 3", r"\[limits\]"),
        ("data = ", "not valid TOML"),
        ("port = 1", "--data DIR"),
        ("data = 'x'\nhost = '0.0.0.0'", "--keys-file"),
        ("data = 'x'\ntls-key = 'k'", "--tls-certificate"),
        ("data = 'x'\npublic-host = ['http://a']", "is not like queues"),
        ("data = 'x'\nallow-origin = 'null'", "is not like https"),
        ("data = 'x'\nmaster = 'local'", "--engine spark"),
    ],
)
def test_what_would_keep_a_server_from_starting_is_said(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        effective(written(tmp_path, text), is_checked=True)


def test_the_commands_print_it(tmp_path: Path) -> None:
    file = written(tmp_path, 'data = "here"\n')
    checked = CliRunner().invoke(commands, ["config", "check", str(file)])
    assert (checked.exit_code, "1 settings, all valid" in checked.stdout) == (0, True)
    listed = CliRunner().invoke(commands, ["config", "show", str(file), "--json"])
    assert {"option": "data", "value": "here", "from": "file"} in json.loads(listed.stdout)
