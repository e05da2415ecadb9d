"""Every option of `lavant serve` comes from the command line, the environment or the file, in this order."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer

from lavant.cli import commands
from lavant.cli.server.config_file import NO_SETTINGS

SERVE = typer.main.get_command(commands).commands["serve"]  # type: ignore[attr-defined]
OPTIONS = {each.name: each for each in SERVE.params if each.name not in {*NO_SETTINGS, "help"}}
SOURCES = ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP")


def values(option: Any) -> list[str]:
    """Three values of an option, as text, different if its type has so many."""
    kind = option.type_descriptor.annotation
    if kind is bool:
        return ["true", "true", "true"]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return [*kind, *kind, *kind][:3]
    return ["11", "12", "13"] if kind in {int, float} else ["a", "b", "c"]


def given(option: Any, file: Path, monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...]) -> tuple[Any, str]:
    """The value and its source, with a value of its own given in each of these sources."""
    texts = dict(zip(SOURCES, values(option), strict=True))
    flag = max(option.opts, key=len)
    arguments = ["--config", str(file)]
    if "COMMANDLINE" in sources:
        arguments += [flag] if option.is_flag else [flag, texts["COMMANDLINE"]]
    monkeypatch.delenv(f"LAVANT_{option.name.upper()}", raising=False)
    if "ENVIRONMENT" in sources:
        monkeypatch.setenv(f"LAVANT_{option.name.upper()}", texts["ENVIRONMENT"])
    text = texts["DEFAULT_MAP"]
    written = text if text.isdigit() or text == "true" else f'"{text}"'
    file.write_text(f"{flag.removeprefix('--')} = {written}\n" if "DEFAULT_MAP" in sources else "")
    context = SERVE.make_context("serve", arguments)
    return context.params[option.name], context.get_parameter_source(option.name).name


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_line_is_before_the_environment_and_that_before_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option, file = OPTIONS[name], tmp_path / "lavant.toml"
    alone = {source: given(option, file, monkeypatch, (source,)) for source in SOURCES}
    assert [source for _, source in alone.values()] == list(SOURCES)
    assert given(option, file, monkeypatch, SOURCES) == alone["COMMANDLINE"]
    assert given(option, file, monkeypatch, SOURCES[1:]) == alone["ENVIRONMENT"]
    assert given(option, file, monkeypatch, ())[1] == "DEFAULT"


def test_blanks_separate_the_values_of_a_repeated_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVANT_PUBLIC_HOST", "a.example b.example")
    assert SERVE.make_context("serve", []).params["public_host"] == ["a.example", "b.example"]


def test_the_port_that_kubernetes_sets_for_a_service_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVANT_PORT", "tcp://10.0.0.1:7324")
    assert SERVE.make_context("serve", []).get_parameter_source("port").name == "DEFAULT"
