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

from lavant.broker.storage.log import LogReader
from lavant.pipeline.cluster.standalone import StandaloneCluster, standalone_cluster
from lavant.pipeline.stream.sinks import read_manifests

PATIENCE_S = 600.0
ROWS_MAX = 250
"""Worlds publish a multiple of it at a time, so that batches are full and can be counted."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=1) as running:
        yield running


def drive(cluster: StandaloneCluster, directory: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.integration.driver", cluster.url, str(directory), str(ROWS_MAX), *more]
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


def is_done(directory: Path) -> bool:
    return batches(directory) * ROWS_MAX >= LogReader(directory / "log").end()


def executors() -> list[int]:
    """Executor processes of the cluster that this test started."""
    backends = [process for process in descendants() if "CoarseGrainedExecutorBackend" in process.command]
    parents = {process.parent for process in backends}
    return [process.pid for process in backends if process.pid not in parents]  # Java itself, not a shell around it


@pytest.mark.soak
def test_killed_executors_and_drivers_lose_nothing_and_repeat_nothing(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """The same on machines that share no disk, with smaller batches, is in `test_bare_stream`."""
    world = EncryptedWorld(tmp_path, subscriptions=5000, publications=750)
    driver = drive(cluster, tmp_path)
    try:
        until(lambda: batches(tmp_path) >= 1, driver, tmp_path)
        world.publish(1000)
        before = batches(tmp_path)
        os.kill(executors()[0], signal.SIGKILL)
        until(lambda: batches(tmp_path) >= before + 2, driver, tmp_path)
        world.publish(1000)
        driver.kill()
        driver.wait()
        assert not is_done(tmp_path)
        driver = drive(cluster, tmp_path)
        until(lambda: is_done(tmp_path), driver, tmp_path)
        (tmp_path / "stop").touch()
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert notified(tmp_path / "notifications") == world.expected()


def test_executors_follow_the_load_out_and_in_and_every_move_is_exact(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """A backlog keeps one executor busy: another one comes. When it is worked off, that goes again."""
    world = EncryptedWorld(tmp_path, subscriptions=20_000, publications=1000)
    driver = drive(cluster, tmp_path, "elastic")
    log = tmp_path / "driver.log"

    def is_out() -> bool:
        if LogReader(world.log).end() < ROWS_MAX * (batches(tmp_path) + 4):
            world.publish(1000)
        return "scale out" in log.read_text()

    try:
        until(is_out, driver, tmp_path)
        world.publish(1000)  # for both
        until(lambda: is_done(tmp_path), driver, tmp_path)
        until(lambda: "scale in" in log.read_text(), driver, tmp_path)
        world.publish(500)  # for the one that is left
        until(lambda: is_done(tmp_path), driver, tmp_path)
        (tmp_path / "stop").touch()
        assert driver.wait(60) == 0
    finally:
        driver.kill()
        driver.wait()
    assert notified(tmp_path / "notifications") == world.expected()
