"""A ZooKeeper server of the tests' own, from Debian's package: on a free loopback port, with a directory of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

JARS = Path("/usr/share/java")
CLASSES = f"{JARS / 'zookeeper.jar'}:{JARS / 'slf4j-simple.jar'}"
"""The package's jar names in its manifest the others that it needs, but for one that prints what the server logs."""
START_S_MAX = 90.0
"""A shared machine may take long to start Java."""

CONFIGURATION = """\
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=500
admin.enableServer=false
4lw.commands.whitelist=ruok
"""


def require_zookeeper() -> None:
    """Skip, with the reason, where ZooKeeper is not installed; continuous integration fails instead."""
    missing = None
    if shutil.which("java") is None:
        missing = "there is no java on the PATH"
    elif not (JARS / "zookeeper.jar").exists():
        missing = f"there is no {JARS / 'zookeeper.jar'}; run tools/zookeeper"
    if missing is None:
        return
    if os.environ.get("CI"):
        pytest.fail(f"ZooKeeper is not installed: {missing}", pytrace=False)
    pytest.skip(f"ZooKeeper is not installed: {missing}")


class ZooKeeperServer:
    """Can be killed and started again, on the same port and data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        data = directory / "data"
        data.mkdir(parents=True)
        (directory / "zoo.cfg").write_text(CONFIGURATION.format(data=data, port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [
            *("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", CLASSES),
            *("org.apache.zookeeper.server.ZooKeeperServerMain", str(self._directory / "zoo.cfg")),
        ]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                shown = (self._directory / "server.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"ZooKeeper {'ended' if ended else 'does not answer'}: {shown}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
