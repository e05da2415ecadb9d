"""A ZooKeeper server of the tests' own, from Debian's package: on a free loopback port, with a directory of its own."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.integration.server_processes import JAVA, ServerProcess, free_port, require_java_server

JARS = Path("/usr/share/java")
CLASSES = f"{JARS / 'zookeeper.jar'}:{JARS / 'slf4j-simple.jar'}"
"""The package's jar names in its manifest the others that it needs, but for one that prints what the server logs."""

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
    jar = JARS / "zookeeper.jar"
    require_java_server("ZooKeeper", None if jar.exists() else f"there is no {jar}; run tools/zookeeper")


class ZooKeeperServer(ServerProcess):
    """Has the same port and data when it is started again."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.hosts = f"127.0.0.1:{self.port}"
        data = directory / "data"
        data.mkdir(parents=True)
        configuration = directory / "zoo.cfg"
        configuration.write_text(CONFIGURATION.format(data=data, port=self.port))
        command = [
            *(*JAVA, "-Xmx128m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", CLASSES),
            *("org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration)),
        ]
        super().__init__("ZooKeeper", command, self._is_ok, directory / "server.log")

    def _is_ok(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False
