"""Clusters whose machines lack something: found before a stream starts, and said in one line that names the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.bare_cluster import BareCluster, bare_cluster
from tests.integration.object_store import CREDENTIALS, ObjectStore, object_store

SMALL = ("--conf", "spark.executor.memory=600m", "--conf", "spark.executor.cores=1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """Executors have Lavant, and see none of the driver's files."""
    with bare_cluster(tmp_path_factory.mktemp("bare"), workers=2, cores=1, environment=CREDENTIALS) as running:
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """Executors have neither Lavant nor the driver's Python."""
    with bare_cluster(tmp_path_factory.mktemp("empty"), workers=1, cores=1, installed=False) as running:
        yield running


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


def lavant(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lavant"), *arguments]
    whole = {**os.environ, **CREDENTIALS, "LAVANT_CACHE_DIR": "", "XDG_CACHE_HOME": "", **environment, "COLUMNS": "300"}
    return subprocess.run(command, cwd=directory, env=whole, capture_output=True, text=True, check=False)


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_a_cluster_that_fits_has_no_problems(cluster: BareCluster, store: ObjectStore, tmp_path: Path) -> None:
    done = lavant(tmp_path, "spark", "check", "--master", cluster.url, *SMALL, "--json", store.uri("place"))
    assert (done.returncode, done.stderr) == (0, "")
    reports: list[dict[str, Any]] = json.loads(done.stdout)
    assert sorted(report["installation"]["host"] for report in reports) == ["worker-0", "worker-1"]
    assert [place["read_bytes"] for report in reports for place in report["places"]] == [1 << 20, 1 << 20]
    assert not any("preflight" in name for name in store.names("place"))


def test_a_place_that_executors_do_not_see_is_named_with_the_machine(cluster: BareCluster, tmp_path: Path) -> None:
    done = lavant(tmp_path, "spark", "check", "--master", cluster.url, *SMALL, str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (1, "")
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert len(problems) == 2
    assert any(line.startswith("problem: machine worker-1 (executor ") for line in problems)
    assert all("mount it on all machines under this path, or use a storage that they all reach" in p for p in problems)
    assert files_below(tmp_path) == []


def test_executors_without_lavant_are_named_with_the_remedy(empty: BareCluster, tmp_path: Path) -> None:
    done = lavant(tmp_path, "spark", "check", "--master", empty.url, *SMALL)
    assert (done.returncode, done.stderr) == (1, "")
    [problem] = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert "machine 127.0.0.11 (executor 0) has no " in problem
    assert "lavant spark pack" in problem


def test_an_archive_is_all_that_executors_need(empty: BareCluster, tmp_path: Path) -> None:
    packed = lavant(tmp_path, "spark", "pack", "lavant.tar.gz")
    assert (packed.returncode, packed.stderr) == (0, "")
    arguments = ("--master", empty.url, *SMALL, "--archive", "lavant.tar.gz")
    done = lavant(tmp_path, "spark", "check", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [report] = json.loads(done.stdout)
    assert report["installation"]["host"] == "worker-0"
    assert report["problems"] == []
