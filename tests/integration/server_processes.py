"""Servers of others that tests start: on a free loopback port, with their output in a log, until they answer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.integration.components import do_without

START_S_MAX = 90.0
"""A shared machine may take long to start Java."""
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_java_server(name: str, missing: str | None) -> None:
    """Skip, with the reason, where a server is not installed; continuous integration fails instead."""
    if shutil.which("java") is None:
        missing = "there is no java on the PATH"
    if missing is not None:
        do_without(f"{name} is not installed: {missing}")


class ServerProcess:
    """One process, which can be killed and started again."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        answers: Callable[[], bool],
        log: Path,
        working_directory: Path | None = None,
    ) -> None:
        self._name, self._command, self._answers, self._log = name, command, answers, log
        self._working_directory = working_directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._working_directory
            )
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                shown = self._log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{self._name} {'ended' if ended else 'does not answer'}: {shown}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
