"""Tables and data sources through a real Spark Connect server.

Index files are shipped: no task that matches reads the client's disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.integration.connect_client import ALERTS

from lavant.broker.filters import Filter
from lavant.broker.slices import SliceStore
from lavant.pipeline.operators.parts import SCHEMA, Part
from lavant.pipeline.stream.sinks import BatchManifest, Notifications


def test_tables_and_data_sources_work_through_spark_connect(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path / "store", slices=3)
    store.add([1, 2], list(ALERTS.values()))
    root = Path(__file__).parents[2]
    found = pa.table({"key": [4, 7], "id": ["a", None], "subscriptions": [[1, 2], []], "rejected": [None, "no"]})
    (tmp_path / "notifications").mkdir()
    pq.write_table(found.cast(SCHEMA), tmp_path / "notifications" / "part-0")
    manifest = BatchManifest(batch=0, start=0, end=8, rows=2, matches=2, parts=(Part("part-0", 2, 2),))
    Notifications(tmp_path / "notifications").commit(manifest)
    arguments = [str(store.directory), str(tmp_path / "notifications"), str(tmp_path)]
    command = [sys.executable, "-m", "tests.integration.connect_client", *arguments]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    results = json.loads(ran.stdout.splitlines()[-1])
    wanted = [["q1", ["a", "b"], False], ["q3", [], True]]
    assert results["table"] == results["groups"] == results["sql"] == wanted
    assert results["store"] == [["q1", [1, 2], False], ["q3", [], True]]
    assert results["scalar"] == ["q1"]
    assert "executors do not reach" in results["stream"]
    assert "does not bring the index of a table to the tasks of a streaming query" in results["stream of a table"]
    through = results["sources"]
    assert through["copied"] == list(range(20))
    assert {id: Filter.parse(text) for id, text in through["subscriptions"].items()} == {
        str(id): Filter.parse(text) for id, text in zip((1, 2), ALERTS.values(), strict=True)
    }
    assert through["notifications"] == [[0, 4, "a", [1, 2], None], [0, 7, None, [], "no"]]
