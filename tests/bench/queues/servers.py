"""The servers that are compared, each started on a free loopback port with a directory of its own, and ended again."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.integration.rabbitmq import RabbitMQNode
from tests.integration.server_processes import free_port

START_S_MAX = 90.0
VENV = Path(sys.executable).parent


@contextmanager
def lavant(directory: Path, *options: str) -> Iterator[tuple[int, int]]:
    """Its port and process id."""
    port = free_port()
    command = [str(VENV / "lavant"), "serve", "--port", str(port), "--data", str(directory), *options]
    with _running(command, directory.with_suffix(".log"), lambda: is_ready(port)) as process:
        yield port, process


@contextmanager
def moto(directory: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [str(VENV / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, directory.with_suffix(".log"), lambda: answers(port)) as process:
        yield port, process


@contextmanager
def instant(directory: Path) -> Iterator[tuple[int, int]]:
    """One that does nothing, to know what clients of SQS take themselves."""
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.queues.instant", str(port)]
    with _running(command, directory.with_suffix(".log"), lambda: answers(port)) as process:
        yield port, process


@contextmanager
def rabbitmq(directory: Path) -> Iterator[tuple[int, int]]:
    node = RabbitMQNode(directory)
    node.start()
    try:
        yield node.port, node.pid
    finally:
        node.stop()


@contextmanager
def _running(command: list[str], log: Path, is_ready: Callable[[], bool]) -> Iterator[int]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S_MAX
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With everything that it started: the whole session is its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
            return


def is_ready(port: int) -> bool:
    """Whether a server of Lavant has loaded its kernels, and serves requests."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
