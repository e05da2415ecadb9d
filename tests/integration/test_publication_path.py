"""The path of a publication in `docs/architecture.md` is the path that a publication takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tests.integration import path_tracer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
CROSSINGS_MAX = 6
STEP = re.compile(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|", re.MULTILINE)


def documented_path() -> list[tuple[str, str]]:
    """File and function of each step."""
    section = PAGE.read_text(encoding="utf-8").split("## The path of a publication")[1].split("\n## ")[0]
    return STEP.findall(section)


def test_a_publication_takes_the_documented_path(tmp_path: Path) -> None:
    program = [sys.executable, path_tracer.__file__, str(tmp_path)]
    output = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT).stdout
    calls = [tuple(call) for call in json.loads(output.splitlines()[-1])]
    left = iter(calls)
    missing = [step for step in documented_path() if step not in left]  # `in` consumes: the order counts, too
    assert missing == []
    assert len(documented_path()) > 20


def test_the_path_changes_between_service_and_broker_a_few_times_only() -> None:
    sides = [file.partition("/")[0] for file, _ in documented_path()]
    crossings = sum(before != after for before, after in pairwise(side for side in sides if side != "core"))
    assert crossings <= CROSSINGS_MAX
