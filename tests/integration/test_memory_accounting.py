"""Memory is counted as it is: a process is filled with each kind of thing, and what is counted is near what it took."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.integration.memory_filling import KINDS

LOW, HIGH = 0.7, 1.5
"""Counted over real. Dictionaries double in size, so what a thing takes differs by some tens of percent by itself."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_is_near_what_it_takes(kind: str) -> None:
    program = [sys.executable, "-m", "tests.integration.memory_filling", kind]
    counted, real = map(int, subprocess.run(program, check=True, capture_output=True, text=True).stdout.split())
    assert LOW < counted / real < HIGH, f"{kind}: {counted} bytes are counted, and {real} were taken"
