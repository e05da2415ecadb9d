"""A Hadoop cluster of the tests' own: HDFS and YARN in one process, on free loopback ports.

It is Hadoop's mini cluster, that of Hadoop's own tests: name node, data node, resource manager and node managers are
the real ones, and containers are real processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.integration.server_processes import JAVA, ServerProcess, free_port, require_java_server

JARS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lavant" / "hadoop"
LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.SimpleLayout
"""
SETTINGS = {
    # Clients and containers must know the ports.
    "yarn.minicluster.fixed.ports": "true",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.scheduler.minimum-allocation-mb": "256",
    # A disk that is 90 % full is no reason to refuse containers, and a busy machine none to kill them.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
}
ADDRESSES = (
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.webapp.address",
    "mapreduce.jobhistory.admin.address",
    "mapreduce.jobhistory.webapp.address",
)
"""All other ports are chosen by the services themselves, or given by options."""


class Hadoop(NamedTuple):
    """A running cluster."""

    port: int
    """Of the name node."""
    configuration: Path
    """For `HADOOP_CONF_DIR`."""
    directory: Path

    def uri(self, path: str) -> str:
        return f"hdfs://127.0.0.1:{self.port}/{path}"

    def container_logs(self) -> str:
        """What containers wrote, for the message of a test that fails."""
        files = sorted(self.directory.rglob("container_*/std*"))
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)


@contextmanager
def hadoop_cluster(directory: Path, nodes: int = 2) -> Iterator[Hadoop]:
    """Start a name node, a data node, a resource manager and node managers, whose files are in `directory`."""
    missing = None if (JARS / "complete").exists() else f"{JARS} is not complete; run tools/hadoop"
    require_java_server("Hadoop", missing)
    configuration, details, temporary = directory / "conf", directory / "details.json", directory / "tmp"
    configuration.mkdir(parents=True)
    temporary.mkdir()
    (directory / "log4j.properties").write_text(LOGGING)
    manager_port = free_port()
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ADDRESSES}
    command = [
        *JAVA, "-Xmx512m", f"-Djava.io.tmpdir={temporary}", f"-Dtest.build.data={directory}/data",
        f"-Dlog4j.configuration=file:{directory}/log4j.properties",
        "-cp", f"{JARS}/*", "org.apache.hadoop.mapreduce.MiniHadoopClusterManager",
        "-format", "-datanodes", "1", "-nodemanagers", str(nodes), "-rmport", str(manager_port),
        "-writeDetails", str(details),
        *(part for name, value in {**SETTINGS, **addresses}.items() for part in ("-D", f"{name}={value}")),
    ]  # fmt: skip

    def is_up() -> bool:
        return details.exists() and details.read_bytes().endswith(b"}")

    server = ServerProcess("Hadoop", command, is_up, directory / "hadoop.log", working_directory=directory)
    server.start()
    try:
        hadoop = Hadoop(int(json.loads(details.read_bytes())["namenode_port"]), configuration, directory)
        addresses["yarn.resourcemanager.address"] = f"127.0.0.1:{manager_port}"
        write_settings(configuration / "core-site.xml", {"fs.defaultFS": hadoop.uri("").rstrip("/")})
        write_settings(configuration / "yarn-site.xml", addresses)
        yield hadoop
    finally:
        server.kill()


def write_settings(path: Path, settings: Mapping[str, str]) -> None:
    root = ElementTree.Element("configuration")
    for name, value in settings.items():
        each = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(each, "name").text = name
        ElementTree.SubElement(each, "value").text = value
    ElementTree.ElementTree(root).write(path)
