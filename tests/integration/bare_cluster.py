"""A standalone cluster whose machines share no disk, on one machine: each worker has a mount namespace of its own.

In it the driver's directories are covered by empty ones, so that executors see nothing of the driver's files:

    with bare_cluster(directory, workers=2, hidden=[data]) as cluster:
        spark = spark_session(cluster.url)

A worker has its own host name (worker-0, …), loopback address, work directory and TMPDIR, all below
`directory/worker-N`. What is hidden besides `hidden`: the driver's temporary directory and the checkout. Lavant and
Python stay visible, unless `installed=False`: then executors have Spark's own Java and Python files, the system's
Python, and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.components import do_without
from tests.integration.processes import Process, descendants, python_workers

import lavant
from lavant.core.kernels.cache import cache_directory
from lavant.pipeline.cluster.standalone import (
    SPARK_HOME,
    StandaloneCluster,
    master_url,
    start_master,
    start_worker,
    wait_for_worker,
)
from lavant.pipeline.session import check_java

CHECKOUT = Path(__file__).resolve().parents[2]
BARE_WORKER = Path(__file__).with_name("bare_worker.py")
APPEARS_S_MAX = 240.0


class Worker(NamedTuple):
    """A machine of the cluster."""

    name: str
    host: str
    process: subprocess.Popen[bytes]
    directory: Path
    """Its work directory, as the tests and the worker see it."""

    def executors(self) -> list[int]:
        return [process.pid for process in _executors(self.process.pid)]

    def sees(self, path: Path) -> bool:
        """Whether a path exists there."""
        return Path(f"/proc/{self.process.pid}/root{path}").exists()


class BareCluster:
    """A running cluster. `url` is the master for `spark_session` and `--master`."""

    def __init__(self, url: str, workers: list[Worker]) -> None:
        self.url = url
        self.workers = workers

    def executors(self) -> list[int]:
        """Process ids of the executors, in no particular order."""
        return [id for worker in self.workers for id in worker.executors()]

    def python_workers(self) -> list[int]:
        """Process ids of the Python workers that the executors' daemons have forked."""
        return [id for executor in self.executors() for id in python_workers(executor)]

    def kill_executor(self) -> int:
        """`kill -9` one of the executors, as soon as there is one; returns its process id."""
        return _kill_one(self.executors)

    def kill_python_worker(self) -> int:
        """`kill -9` one of the Python workers, as soon as there is one; returns its process id."""
        return _kill_one(self.python_workers)

    def logs(self) -> str:
        """What the executors wrote, for the message of a test that fails."""
        files = [file for worker in self.workers for file in sorted(worker.directory.glob("app-*/*/std*"))]
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-4000:]}" for file in files)


def kill_driver(driver: subprocess.Popen[bytes]) -> None:
    """`kill -9` a driver that was started as a process of its own; its Java ends with it."""
    driver.kill()
    driver.wait()


@contextmanager
def bare_cluster(
    directory: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    hidden: Iterable[Path] = (),
    installed: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[BareCluster]:
    """Start a master, and workers with so many executor slots each; logs are in `directory`.

    `environment` is that of the workers beside this process's own. Skips the test where namespaces are not permitted.
    """
    check_java()
    unshare = _unshare()
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    covered = {Path(tempfile.gettempdir()).resolve(), CHECKOUT, *(path.resolve() for path in hidden)}
    if not installed:
        covered |= {Path(sys.prefix).resolve(), *_own(Path(sys.base_prefix).resolve())}
    processes: list[subprocess.Popen[bytes]] = []
    started: list[Worker] = []
    try:
        master, log = start_master(directory)
        processes.append(master)
        url = master_url(master, log)
        logs = []
        for number in range(workers):
            own = directory / f"worker-{number}"
            name, host = own.name, f"127.0.0.{11 + number}"
            (own / "tmp").mkdir(parents=True, exist_ok=True)
            (own / "hosts").write_text(f"127.0.0.1 localhost\n{host} {name}\n")
            kept = [(own, own), (own / "hosts", Path("/etc/hosts"))]
            spark_home = SPARK_HOME if installed else own / "spark"
            if installed:
                kept += [(path, path) for path in _installation()]
            else:
                spark_home.mkdir()
                kept += [(SPARK_HOME, spark_home)]
            plan = {"hidden": [*map(str, covered)], "kept": [(str(a), str(b)) for a, b in kept], "name": name}
            more = {"TMPDIR": str(own / "tmp"), **({} if installed else _bare_environment(own)), **(environment or {})}
            process, log = start_worker(
                url,
                directory,
                number,
                cores=cores,
                host=host,
                wrapper=[*unshare, sys.executable, "-I", str(BARE_WORKER), json.dumps(plan)],
                spark_home=spark_home,
                environment=more,
            )
            processes.append(process)
            logs.append(log)
            started.append(Worker(name, host, process, own))
        for worker, log in zip(started, logs, strict=True):
            wait_for_worker(worker.process, log)
        yield BareCluster(url, started)
    finally:
        StandaloneCluster("", processes).stop()


def _unshare() -> list[str]:
    """A command that gives the one behind it a mount namespace in which it may mount; skips the test without one."""
    tool = shutil.which("unshare")
    if tool is None:
        do_without("unshare (util-linux) is not installed, so workers cannot have mount namespaces")
    command = [tool, "--mount", "--uts", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    tried = subprocess.run(
        [*command, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        do_without(f"workers cannot have mount namespaces here: {tried.stderr.strip()}")
    return command


def _installation() -> list[Path]:
    """Python, Lavant and its compiled kernels."""
    kernels = cache_directory()
    assert lavant.__file__ is not None
    found = [Path(sys.prefix), Path(sys.base_prefix), Path(lavant.__file__).parents[1]]
    return [path.resolve() for path in [*found, *([] if kernels is None else [kernels.parent])] if path.is_dir()]


def _own(prefix: Path) -> list[Path]:
    """Python's own directory; a system's Python cannot be hidden with /usr."""
    return [] if prefix in {Path("/usr"), Path("/usr/local")} else [prefix]


def _bare_environment(directory: Path) -> dict[str, str]:
    """Nothing that leads to the driver's Python, and an empty cache of kernels."""
    path = [place for place in os.defpath.split(":") if place]
    java = shutil.which("java")
    if java is not None:
        path.append(str(Path(java).parent))
    return {
        "PATH": ":".join(path),
        "PYSPARK_PYTHON": "python3",
        "PYTHONPATH": "",
        "VIRTUAL_ENV": "",
        "HOME": str(directory / "home"),
        "XDG_CACHE_HOME": str(directory / "cache"),
        "LAVANT_CACHE_DIR": "",
    }


def _executors(worker: int) -> list[Process]:
    backends = [process for process in descendants(worker) if "CoarseGrainedExecutorBackend" in process.command]
    parents = {process.parent for process in backends}
    return [process for process in backends if process.pid not in parents]  # Java itself, not a shell around it


def _kill_one(candidates: Callable[[], list[int]]) -> int:
    deadline = time.monotonic() + APPEARS_S_MAX
    while not (found := candidates()):
        assert time.monotonic() < deadline, "there is no such process"
        time.sleep(0.05)
    os.kill(found[0], signal.SIGKILL)
    return found[0]
