"""Clusters whose machines lack something, and other failures on Spark: one line, with machine and remedy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from tests.integration.bare_cluster import BareCluster, bare_cluster
from tests.integration.object_store import CREDENTIALS, ObjectStore
from tests.integration.processes import descendants
from tests.integration.serving import Served
from tests.integration.workload import notified

SMALL = ("--conf", "spark.executor.memory=600m", "--conf", "spark.executor.cores=1")
APPEARS_S_MAX = 240.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """Executors have neither Lavant nor the driver's Python, and see none of its files."""
    directory = tmp_path_factory.mktemp("cluster")
    with bare_cluster(directory, workers=1, cores=1, installed=False, environment=CREDENTIALS) as running:
        yield running


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "lavant"), *arguments]


def lavant(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **CREDENTIALS, "COLUMNS": "300"}
    return subprocess.run(
        command(*arguments), cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def readiness(server: Served) -> bytes:
    try:
        with server.http("/readyz") as response:
            return response.read()
    except HTTPError as unhealthy:
        with unhealthy:
            return unhealthy.read()


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_executors_without_lavant_are_named_with_the_remedy(cluster: BareCluster, tmp_path: Path) -> None:
    done = lavant(tmp_path, "spark", "check", "--master", cluster.url, *SMALL)
    assert (done.returncode, done.stderr) == (1, "")
    [problem] = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert "machine 127.0.0.11 (executor 0) has no " in problem
    assert "lavant spark pack" in problem


def test_a_server_says_which_executors_do_not_fit(cluster: BareCluster, tmp_path: Path) -> None:
    with Served(tmp_path / "data", "--engine", "spark", "--master", cluster.url, *SMALL[:2]) as server:
        deadline = time.monotonic() + APPEARS_S_MAX
        while b"machine 127.0.0.11 (executor 0) has no " not in (said := readiness(server)):
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        assert server.stop() == 0


def test_an_archive_is_all_that_executors_need(cluster: BareCluster, objects: ObjectStore, tmp_path: Path) -> None:
    packed = lavant(tmp_path, "spark", "pack", "lavant.tar.gz")
    assert (packed.returncode, packed.stderr) == (0, "")
    arguments = ("--master", cluster.url, *SMALL, "--archive", "lavant.tar.gz", "--json")
    done = lavant(tmp_path, "spark", "check", *arguments, objects.uri("place"), "out")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    [report] = json.loads(done.stdout)
    assert (report["installation"]["host"], report["problems"]) == ("worker-0", [])
    reached, hidden = report["places"]
    assert (reached["problem"], reached["read_bytes"]) == (None, 1 << 20)
    assert (hidden["place"], hidden["problem"]) == (str(tmp_path / "out"), "a file of the driver is not there")
    assert files_below(tmp_path) == ["lavant.tar.gz"]
    assert not any("preflight" in name for name in objects.names("place"))


@pytest.mark.soak
def test_a_stream_needs_only_the_archive(cluster: BareCluster, tmp_path: Path) -> None:
    assert lavant(tmp_path, "spark", "pack", "lavant.tar.gz").returncode == 0
    arguments = ("--master", cluster.url, *SMALL, "--archive", "lavant.tar.gz", "--json")
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "a = 1"}\n{"id": 2, "filter": "a > 1"}\n')
    (tmp_path / "p.jsonl").write_text('{"@id": "p", "a": 1}\n{"@id": "q", "a": 2}\n')
    files = ("--subscriptions", "s.jsonl", "--input", "p.jsonl", "--output", "out")
    done = lavant(tmp_path, "stream", *files, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert notified(tmp_path / "out" / "notifications") == {"p": [1], "q": [2]}


def test_a_java_that_is_killed_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "a = 1"}\n')
    (tmp_path / "p.jsonl").write_text('{"@id": "p", "a": 1}\n')
    arguments = ("--subscriptions", "s.jsonl", "--input", "p.jsonl", "--output", "out", "--master", "local[1]")
    with subprocess.Popen(
        command("stream", *arguments), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as stream:
        deadline = time.monotonic() + APPEARS_S_MAX
        while not any("lavant.pipeline.internals.daemon" in each.command.split() for each in descendants(stream.pid)):
            assert stream.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        [java] = [each.pid for each in descendants(stream.pid) if "SparkSubmit" in each.command]
        os.kill(java, signal.SIGKILL)
        printed, complaint = stream.communicate()
    assert (stream.returncode, printed) == (9, "")
    assert complaint.count("\n") == 1, complaint
    assert "Spark's Java process ended (killed by signal 9); details: " in complaint
    log = Path(complaint.rpartition("details: ")[2].strip())
    assert "Traceback" in log.read_text()
