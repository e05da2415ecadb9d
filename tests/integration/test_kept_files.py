"""Logs, slice stores, keys and states that earlier versions wrote are read with everything in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.data_directories import unpack
from tests.integration.kept_files import found_in, write

ARCHIVES = sorted((Path(__file__).resolve().parents[1] / "data").glob("*/files.tar.xz"))


def test_there_are_files_to_read() -> None:
    assert [archive.parent.name for archive in ARCHIVES][:1] == ["files-0"]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.parent.name)
def test_files_of_before_are_read_with_everything_in_them(archive: Path, tmp_path: Path) -> None:
    noted = json.loads((archive.parent / "files.json").read_text())
    assert json.loads(json.dumps(found_in(unpack(archive, tmp_path)))) == noted


def test_files_of_today_say_the_same_as_those_of_before(tmp_path: Path) -> None:
    """So that whoever adds an archive adds one that holds as much."""
    write(tmp_path)
    assert json.loads(json.dumps(found_in(tmp_path))) == json.loads((ARCHIVES[-1].parent / "files.json").read_text())
