"""The example of docs/encryption.md runs, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[4] / "docs" / "encryption.md"


def test_the_example_prints_what_the_page_shows() -> None:
    program, output = re.findall(r"```(?:python)?\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:2]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, str(PAGE), "exec"), {})
    assert printed.getvalue() == output
