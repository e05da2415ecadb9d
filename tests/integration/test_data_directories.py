"""Data directories that earlier versions wrote open with everything in them, and mean what they meant then."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from tests.integration.data_directories import Writer, contains, future_of, opened, state_of, unpack

from lavant.broker.machine.state import BrokerState

DATA = Path(__file__).resolve().parents[1] / "data"
ARCHIVES = sorted(DATA.glob("*/[js]*.tar.xz"))


def noted(archive: Path) -> Any:
    return json.loads(lzma.decompress((archive.parent / "state.json.xz").read_bytes()))


def test_there_are_directories_to_open() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in ARCHIVES][:2] == [
        "rules-0/journal.tar.xz",
        "rules-0/snapshot.tar.xz",
    ]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name}")
class TestAnOldDirectory:
    def test_replays_to_the_state_that_its_own_version_had(self, archive: Path, tmp_path: Path) -> None:
        unpack(archive, tmp_path)
        assert contains(state_of(opened(tmp_path)), noted(archive)["state"])
        assert contains(future_of(opened(tmp_path)), noted(archive)["future"])

    def test_has_the_same_state_in_a_snapshot_of_today(self, archive: Path, tmp_path: Path) -> None:
        broker = BrokerState.restore(list(opened(unpack(archive, tmp_path)).snapshot()))
        assert contains(state_of(broker), noted(archive)["state"])
        assert contains(future_of(broker), noted(archive)["future"])

    def test_goes_on_with_a_server_of_today(self, archive: Path, tmp_path: Path) -> None:
        writer = Writer(unpack(archive, tmp_path))
        before = state_of(writer.server.broker)
        writer.compact()
        writer.close()
        assert state_of(opened(tmp_path)) == before
        assert future_of(opened(tmp_path)) == future_of(writer.server.broker)
