"""Tables through a real Spark Connect server: index files are shipped, and no task reads the client's disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.integration.connect_client import ALERTS

from lavant.broker.slices import SliceStore


def test_tables_are_matched_through_spark_connect(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path / "store", slices=3)
    store.add([1, 2], list(ALERTS.values()))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.integration.connect_client", str(store.directory)]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    results = json.loads(ran.stdout.splitlines()[-1])
    wanted = [["q1", ["a", "b"], False], ["q3", [], True]]
    assert results["table"] == results["groups"] == results["sql"] == wanted
    assert results["store"] == [["q1", [1, 2], False], ["q3", [], True]]
    assert results["scalar"] == ["q1"]
    assert "executors do not reach" in results["stream"]
