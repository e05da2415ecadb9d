"""A standalone cluster with several executors: kills, recovery, and executors that follow the load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.processes import descendants
from tests.integration.workload import EncryptedWorld, notified

from lavant.broker.log import LogReader
from lavant.pipeline.sinks import read_manifests
from lavant.pipeline.standalone import StandaloneCluster, standalone_cluster

PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2) as running:
        yield running


def drive(cluster: StandaloneCluster, directory: Path, rows_max: int, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.integration.driver", cluster.url, str(directory), str(rows_max), *more]
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def until(condition: Callable[[], bool], driver: subprocess.Popen[bytes], directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        log = (directory / "driver.log").read_text(errors="replace")
        assert driver.poll() is None, f"the driver ended: {log[-2000:]}"
        assert time.monotonic() < deadline, f"it takes too long: {log[-2000:]}"
        time.sleep(0.05)


def batches(directory: Path) -> int:
    return len(read_manifests(directory / "notifications"))


def is_done(directory: Path, rows_max: int) -> bool:
    end = LogReader(directory / "log").end()
    return batches(directory) >= -(-end // rows_max)


def executors() -> list[int]:
    """Executor processes of the cluster that this test started."""
    backends = [process for process in descendants() if "CoarseGrainedExecutorBackend" in process.command]
    parents = {process.parent for process in backends}
    return [process.pid for process in backends if process.pid not in parents]  # Java itself, not a shell around it


def test_killed_executors_and_drivers_lose_nothing_and_repeat_nothing(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    world = EncryptedWorld(tmp_path, subscriptions=20_000, publications=3000)
    driver = drive(cluster, tmp_path, 150)
    try:
        until(lambda: batches(tmp_path) >= 3, driver, tmp_path)
        before = batches(tmp_path)
        os.kill(executors()[0], signal.SIGKILL)
        until(lambda: batches(tmp_path) >= before + 3, driver, tmp_path)
        driver.kill()
        driver.wait()
        assert not is_done(tmp_path, 150)
        driver = drive(cluster, tmp_path, 150)
        until(lambda: is_done(tmp_path, 150), driver, tmp_path)
        (tmp_path / "stop").touch()
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert notified(tmp_path / "notifications") == world.expected()


def test_executors_follow_the_load_out_and_in_and_every_move_is_exact(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """A backlog keeps one executor busy: more come. When it is worked off, they go again."""
    world = EncryptedWorld(tmp_path, subscriptions=50_000, publications=20_000)
    driver = drive(cluster, tmp_path, 250, "elastic")
    log = tmp_path / "driver.log"
    try:
        until(lambda: "scale out" in log.read_text(), driver, tmp_path)
        until(lambda: is_done(tmp_path, 250), driver, tmp_path)
        until(lambda: "scale in" in log.read_text(), driver, tmp_path)
        (tmp_path / "stop").touch()
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert notified(tmp_path / "notifications") == world.expected()
