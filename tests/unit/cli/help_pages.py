"""The help texts in docs/reference: compares them with the commands, and writes them anew.

    python -m tests.unit.cli.help_pages

rewrites every block that begins with `$ lavant COMMAND --help`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from lavant.cli import commands

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
WIDTH = 100
HELP_BLOCK = re.compile(r"```\n\$ lavant ((?:[a-z-]+ )*)--help\n(?:(?!\n\$ )[^`]|`[^`])*?```")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def leaf_commands() -> Iterator[tuple[str, ...]]:
    """The words of every command that is not a group: ("queue", "create")."""

    def walk(command: object, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words
        else:
            for name, each in inner.items():
                if not each.hidden:
                    yield from walk(each, (*words, name))

    return walk(typer.main.get_command(commands), ())


def help_text(words: tuple[str, ...]) -> str:
    """What `lavant WORDS --help` prints on a terminal of 100 characters, without colours."""
    os.environ.pop("FORCE_COLOR", None)
    result = CliRunner().invoke(
        commands, [*words, "--help"], env={"COLUMNS": str(WIDTH)}, prog_name="lavant", terminal_width=WIDTH
    )
    assert result.exit_code == 0, result.output
    return "\n".join(line.removeprefix(" ") if "Usage:" in line else line for line in _lines(result.output))


def documented(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command with a help block on a page, and the block."""
    for found in HELP_BLOCK.finditer(text):
        yield tuple(found[1].split()), found[0]


def block(words: tuple[str, ...]) -> str:
    return f"```\n$ {' '.join(['lavant', *words, '--help'])}\n{help_text(words)}\n```"


def _lines(output: str) -> list[str]:
    return [line.rstrip() for line in _COLOURS.sub("", output).strip("\n ").splitlines()]


if __name__ == "__main__":
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(HELP_BLOCK.sub(lambda found: block(tuple(found[1].split())), text), encoding="utf-8")
