"""A RabbitMQ node of the tests' own, from Debian's package: on a free loopback port, with a directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.integration.components import do_without
from tests.integration.server_processes import free_port

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_S_MAX = 90.0
"""A shared machine may take long to start Erlang."""

CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.file.level = warning
"""


def require_rabbitmq() -> None:
    """Skip, with the reason, where RabbitMQ is not installed; continuous integration fails instead."""
    if not SERVER.exists():
        do_without(f"RabbitMQ is not installed: there is no {SERVER}; run tools/rabbitmq")


class RabbitMQNode:
    """Can be killed and started again, on the same port and data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port))
        (directory / "plugins").write_text("[].\n")
        self._environment = {
            **os.environ,
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_NODENAME": f"lavant{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._directory / "output.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(SERVER)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                cwd=self._directory,  # where Erlang leaves what it dumps
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"RabbitMQ does not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def has_written_down(self, queues: int) -> bool:
        """Whether so many queues outlive a crash.

        A quorum queue has a directory at once, but RabbitMQ 3.10 has its name in the list of all only a second later;
        killed before that, it starts the queue anew, and nobody can use it.
        """
        [listed] = self._directory.glob("data/*/quorum/*/names.dets")
        names = listed.read_bytes()
        there = [each.name.encode() for each in listed.parent.iterdir() if each.is_dir()]
        return len(there) >= queues and all(each in names for each in there)

    def kill(self) -> None:
        """As a crash does: the node and everything that it started."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """For good, with Erlang's name server, which leaves the session that started it."""
        self._end(signal.SIGTERM)
        self._end(signal.SIGKILL)
        subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
            self._process = None

    def _answers(self) -> bool:
        """With the first bytes of its protocol: the port is open before."""
        import socket

        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.settimeout(5.0)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(1))
        except OSError:
            return False
