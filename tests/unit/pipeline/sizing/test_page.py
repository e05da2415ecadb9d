"""docs/sizing.md shows the constants of the code, and what the commands on it print.

    python -m tests.unit.pipeline.sizing.test_page

writes both anew.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from lavant.cli import commands
from lavant.pipeline.sizing.constants import MATCHERS, MEASURED, Measured, PipelineConstants

PAGE = Path(__file__).parents[4] / "docs" / "sizing.md"
EXAMPLE = re.compile(r"```\n\$ lavant (spark size .*)\n(?:[^`]*?)```")
TABLE = re.compile(r"\| constant \|.*\n(?:\|.*\n)+")


def constant_table() -> str:
    fixed = PipelineConstants()
    rows: dict[str, Measured] = {name: getattr(fixed, name) for name in fixed.__struct_fields__}
    for kind, matcher in MATCHERS.items():
        rows |= {f"{kind}: {name}": getattr(matcher, name) for name in matcher.__struct_fields__}
    lines = [f"| {name} | {each.value:.3g} | {each.unit} | {each.of} |" for name, each in rows.items()]
    return "\n".join(["| constant | value | unit | measured |", "| --- | ---: | --- | --- |", *lines, ""])


def example(found: re.Match[str]) -> str:
    printed = CliRunner().invoke(commands, shlex.split(found[1])).output
    return f"```\n$ lavant {found[1]}\n{printed}```"


def rewritten(text: str) -> str:
    return EXAMPLE.sub(example, TABLE.sub(lambda _: constant_table(), text))


def test_the_page_shows_the_constants_and_what_the_commands_print() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(EXAMPLE.findall(text)) >= 3
    assert MEASURED in " ".join(text.split())
    assert rewritten(text) == text


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
