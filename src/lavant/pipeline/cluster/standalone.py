"""A Spark standalone cluster on this machine: a master and workers on loopback, from pip's pyspark alone."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from lavant.core.errors import MissingComponent
from lavant.pipeline.session import check_java

START_S_MAX = 60.0
SPARK_HOME = Path(pyspark.__file__).parent


class StandaloneCluster:
    """A running cluster. `url` is the master for `spark_session`."""

    def __init__(self, url: str, processes: list[subprocess.Popen[bytes]]) -> None:
        self.url = url
        self._processes = processes

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def standalone_cluster(directory: Path, *, workers: int = 1, cores: int = 4) -> Iterator[StandaloneCluster]:
    """Start a master and workers with so many executor slots each; logs and executors' files go below `directory`."""
    check_java()
    directory.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master_log = directory / "master.log"
        processes.append(
            _start("master.Master", ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], master_log)
        )
        url = _wait_for(master_log, r"Starting Spark master at (spark://[\w.:]+)")
        for number in range(workers):
            arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(cores)]
            arguments += ["--memory", f"{cores}g", "--work-dir", str(directory / f"worker-{number}"), url]
            log = directory / f"worker-{number}.log"
            processes.append(_start("worker.Worker", arguments, log))
            _wait_for(log, r"(Successfully registered with master)")
        yield StandaloneCluster(url, processes)
    finally:
        StandaloneCluster("", processes).stop()


def _start(role: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
        "SPARK_NO_DAEMONIZE": "1",
    }
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, stdin=subprocess.DEVNULL
        )


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise MissingComponent(f"a Spark process did not start within {START_S_MAX:.0f} s ({log}): {''.join(last)}")
