"""Options and arguments with a few allowed values: another one is refused in one line that names it and these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.cli.help_pages import leaf_commands
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.core.errors import InvalidValue
from lavant.models.petri.nets import NETS
from lavant.service.auth.keys import KEY_SCOPES

NONSENSE = "nonsense"
TEXTS = {
    ("keys", "new", "name", "--file", "keys.toml", "--scope", NONSENSE): KEY_SCOPES,
    ("model", "fit", ".", "--rates-per", NONSENSE): ("second", "minute", "hour"),
    ("petri", "show", NONSENSE): tuple(NETS),
    ("reproduce", NONSENSE): ("allocation", "balancing", "e-streamhub", "publisher", "reliable-queue"),
    ("reproduce", "reliable-queue", NONSENSE): ("11", "12", "13", "14", "15"),
    ("sim", "run", NONSENSE): ("balancing", "federation", "queues", "slices", "workflows"),
    ("spark", "check", "--master", NONSENSE): ("local[*]", "yarn"),
}
"""Those that are texts for Typer, because what they may be is looked up when the command runs."""


def enumerations() -> Iterator[tuple[tuple[str, ...], list[str]]]:
    for words in leaf_commands():
        command: Any = typer.main.get_command(commands)
        for word in words:
            command = command.commands[word]
        for parameter in command.params:
            kind = parameter.type_descriptor.annotation
            if isinstance(kind, type) and issubclass(kind, Enum):
                option = parameter.opts[0]
                given = (option, NONSENSE) if option.startswith("-") else (NONSENSE,)
                yield (*words, *given), [each.value for each in kind]


def test_there_are_options_to_try() -> None:
    assert {("serve", "--log-level", NONSENSE), ("demo", NONSENSE)} <= {words for words, _ in enumerations()}


@pytest.mark.parametrize(("words", "allowed"), list(enumerations()), ids=str)
def test_an_option_names_what_it_may_be(words: tuple[str, ...], allowed: list[str]) -> None:
    result = CliRunner().invoke(commands, list(words), terminal_width=200)
    assert result.exit_code == 2
    [said] = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert all(f"'{each}'" in said for each in (NONSENSE, *allowed))


@pytest.mark.parametrize(("words", "allowed"), list(TEXTS.items()), ids=str)
def test_a_text_names_what_it_may_be(
    words: tuple[str, ...], allowed: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(commands, list(words)).exception
    assert isinstance(error, InvalidValue)
    assert "\n" not in str(error)
    assert all(each in str(error) for each in (NONSENSE, *allowed))


def numbers() -> Iterator[tuple[tuple[str, ...], str]]:
    for words in leaf_commands():
        command: Any = typer.main.get_command(commands)
        for word in words:
            command = command.commands[word]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.type_descriptor.annotation in (int, float):
                yield words, parameter.opts[0]


@pytest.mark.parametrize(("words", "option"), list(numbers()), ids=str)
def test_what_is_no_number_is_shown_with_what_is_wanted(words: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(commands, [*words, option, NONSENSE])
    assert result.exit_code == InvalidValue.exit_code
    assert re.search(
        rf"'{option}'.*: it must be a (whole )?number.*, got '{NONSENSE}'", result.output.replace("\n", " ")
    )


@pytest.mark.parametrize("value", ["99999", "1.5", "true", "[1]"])
def test_a_number_of_a_file_that_an_option_does_not_take_is_shown(value: str, tmp_path: Path) -> None:
    (tmp_path / "lavant.toml").write_text(f'data = "data"\nport = {value}\n')
    result = CliRunner().invoke(commands, ["config", "check", str(tmp_path / "lavant.toml")])
    assert isinstance(result.exception, InvalidValue)
    assert "port: it must be a whole number from 0 to 65535, got" in str(result.exception)
