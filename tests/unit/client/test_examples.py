"""The examples on the pages of the client are programs that mypy accepts with --strict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("client.md", "workers.md", "workflows.md")
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(r"^(?:import|from) ", re.MULTILINE)
"""A block without imports continues the one before, and is no program."""


@pytest.mark.soak
def test_every_example_passes_mypy_strict(tmp_path: Path) -> None:
    for page in PAGES:
        for number, block in enumerate(_BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))):
            if _PROGRAM.search(block) and ">>>" not in block:
                (tmp_path / f"{page.removesuffix('.md')}_{number}.py").write_text(block, encoding="utf-8")
    files = sorted(map(str, tmp_path.glob("*.py")))
    assert len(files) > 8
    said, errors, code = api.run(["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), *files])
    assert code == 0, said + errors
