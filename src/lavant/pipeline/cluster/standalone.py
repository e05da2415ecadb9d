"""A Spark standalone cluster on this machine: a master and workers on loopback, from pip's pyspark alone."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from lavant.core.errors import MissingComponent
from lavant.pipeline.internals.scala_classes import STANDALONE_MASTER, STANDALONE_WORKER
from lavant.pipeline.session import check_java

START_S_MAX = 60.0
SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"


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
        process, log = start_master(directory)
        processes.append(process)
        url = master_url(process, log)
        for number in range(workers):
            process, log = start_worker(url, directory, number, cores=cores)
            processes.append(process)
            wait_for_worker(process, log)
        yield StandaloneCluster(url, processes)
    finally:
        StandaloneCluster("", processes).stop()


def start_master(directory: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Returns the process and its log."""
    log = directory / "master.log"
    return _start(STANDALONE_MASTER, ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"], log), log


def master_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the master listens, and return its URL."""
    return _wait_for(process, log, r"Starting Spark master at (spark://[\w.:]+)")


def start_worker(
    url: str,
    directory: Path,
    number: int,
    *,
    cores: int,
    host: str = LOOPBACK,
    wrapper: Sequence[str] = (),
    spark_home: Path = SPARK_HOME,
    environment: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Path]:
    """Returns the process and its log. `wrapper` is a command that starts the one behind it."""
    arguments = ["--host", host, "--port", "0", "--webui-port", "0", "--cores", str(cores)]
    arguments += ["--memory", f"{cores}g", "--work-dir", str(directory / f"worker-{number}"), url]
    log = directory / f"worker-{number}.log"
    more = {"SPARK_LOCAL_IP": host, **(environment or {})}
    return _start(STANDALONE_WORKER, arguments, log, wrapper=wrapper, spark_home=spark_home, environment=more), log


def wait_for_worker(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the worker has joined its master."""
    _wait_for(process, log, r"(Successfully registered with master)")


def _start(
    role: str,
    arguments: list[str],
    log: Path,
    *,
    wrapper: Sequence[str] = (),
    spark_home: Path = SPARK_HOME,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    whole = {
        **os.environ,
        "SPARK_HOME": str(spark_home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
        "SPARK_NO_DAEMONIZE": "1",
        **(environment or {}),
    }
    command = [*wrapper, str(spark_home / "bin" / "spark-class"), role, *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=whole, stdin=subprocess.DEVNULL)


def _wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    how = "did not start" if process.poll() is not None else f"did not start within {START_S_MAX:.0f} s"
    raise MissingComponent(f"a Spark process {how} ({log}): {''.join(last)}")
