"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[4] / "docs" / "publisher.md"


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 8
    assert results.failed == 0
