"""A stream on the master `k8s://`: what Spark asks of a Kubernetes cluster, and executors as its pods say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.pod_stand_in import pod_cluster
from tests.integration.workload import notified

pytestmark = [pytest.mark.soak, pytest.mark.external]


def test_a_stream_runs_in_the_pods_that_it_asks_for(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "a = 1"}\n{"id": 2, "filter": "a > 1"}\n')
    (tmp_path / "p.jsonl").write_text('{"@id": "p", "a": 1}\n{"@id": "q", "a": 2}\n')
    (tmp_path / "pods").mkdir()
    settings = {
        "spark.kubernetes.container.image": "lavant-spark:0.1.0",
        "spark.kubernetes.namespace": "lavant",
        "spark.executor.instances": "2",
        "spark.executor.memory": "600m",
        "spark.executorEnv.LAVANT_CACHE": str(tmp_path / "cache"),
    }
    with pod_cluster(tmp_path / "pods") as cluster:
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "lavant"), "stream", "--master", f"k8s://{cluster.url}",
                "--subscriptions", "s.jsonl", "--input", "p.jsonl", "--output", "out",
                *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
            ],
            cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert cluster.faults == []
    assert (done.returncode, done.stderr) == (0, "")
    assert notified(tmp_path / "out" / "notifications") == {"p": [1], "q": [2]}
    assert len(cluster.pods) == 2
    for pod in cluster.pods.values():
        [container] = pod["spec"]["containers"]
        assert container["image"] == "lavant-spark:0.1.0"
        assert container["resources"]["requests"] == {"cpu": "1", "memory": "984Mi"}
        assert {"name": "LAVANT_CACHE", "value": str(tmp_path / "cache")} in container["env"]
