"""What the pages about models and planning show is what happens."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.control.allocation.system.toml_file import SystemFile
from lavant.core.errors import LavantError

ROOT = Path(__file__).resolve().parents[4]
PLANNER = ROOT / "docs" / "planner.md"


@pytest.mark.parametrize(("page", "examples"), [("models.md", 20), ("planner.md", 7)])
def test_the_examples_of_the_page_run(page: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    results = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert results.attempted >= examples
    assert results.failed == 0


def blocks() -> list[tuple[str, str]]:
    """Commands of the planner with what the page says they print; … stands for lines that are left out."""
    found = re.findall(r"```\n\$ lavant (plan .*)\n((?:.*\n)*?)```", PLANNER.read_text(encoding="utf-8"))
    return [(command, shown) for command, shown in found]


@pytest.mark.parametrize(("command", "shown"), blocks(), ids=[command for command, _ in blocks()])
def test_a_command_prints_what_the_page_shows(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(commands, shlex.split(command))
    printed = result.stdout
    if result.exception is not None:
        assert isinstance(result.exception, LavantError)
        printed = f"lavant: {result.exception}\n"
    assert printed.endswith(shown.removeprefix("…\n"))
    assert shown.startswith("…") or printed == shown


def test_the_page_has_commands() -> None:
    assert len(blocks()) >= 6


def test_the_described_file_can_be_used() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PLANNER.read_text(encoding="utf-8"), flags=re.S)
    file = SystemFile(text, name="page")
    assert file.system.network.topic_names == ("resize", "store")
    assert not file.system.network.jobs[1].is_route
