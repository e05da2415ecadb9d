"""`lavant reslice`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.broker.slices.small_stores import add, expected, read
from typer.testing import CliRunner

from lavant.broker.slices import SliceReader, SliceStore
from lavant.cli import commands
from lavant.core.errors import CorruptSnapshot


def test_a_store_gets_another_number_of_slices_and_its_subscriptions_stay(tmp_path: Path) -> None:
    add(SliceStore.create(tmp_path, slices=2), {1: 1, 2: 2, 3: 3})
    said = CliRunner().invoke(commands, ["reslice", str(tmp_path), "--slices", "5"]).output
    assert said == f"{tmp_path}: 5 slices instead of 2, from version 2 on\n"
    assert len(SliceReader(tmp_path).version().slices) == 5
    assert read(tmp_path) == expected({1: 1, 2: 2, 3: 3})
    said = CliRunner().invoke(commands, ["reslice", str(tmp_path), "--slices", "5"]).output
    assert said == f"{tmp_path} has 5 slices already\n"
    said = CliRunner().invoke(commands, ["reslice", str(tmp_path), "--slices", "1", "--json"]).output
    assert json.loads(said) == {"store": str(tmp_path), "before": 5, "slices": 1, "version": 3}


def test_a_directory_without_a_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    failure = CliRunner().invoke(commands, ["reslice", str(tmp_path / "none"), "--slices", "5"]).exception
    assert isinstance(failure, CorruptSnapshot)
    assert "holds no subscriptions" in str(failure)
    assert list(tmp_path.iterdir()) == []
