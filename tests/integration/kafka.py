"""A Kafka broker of the tests' own, in KRaft mode: on free loopback ports, with a directory of its own."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from tests.integration.zookeeper import free_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lavant" / "kafka"
BROKER, CONNECTOR = CACHE / "broker", CACHE / "connector"
START_S_MAX = 90.0
"""A shared machine may take long to start Java."""
USER, PASSWORD = "reader", "pass-word/of tests"

CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
JAVA = (
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BROKER}/*"),
)


def require_kafka() -> None:
    """Skip, with the reason, where Kafka is not installed; continuous integration fails instead."""
    missing = None
    if shutil.which("java") is None:
        missing = "there is no java on the PATH"
    for directory in (BROKER, CONNECTOR):
        if not (directory / "complete").exists():
            missing = f"{directory} is not complete; run tools/kafka"
    if missing is None:
        return
    if os.environ.get("CI"):
        pytest.fail(f"Kafka is not installed: {missing}", pytrace=False)
    pytest.skip(f"Kafka is not installed: {missing}")


def connector_jars() -> str:
    """For Spark's setting `spark.jars`; empty where the connector is not installed."""
    return ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))) if (CONNECTOR / "complete").exists() else ""


class KafkaRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class KafkaBroker:
    """One node, its own controller. Topics are made by `make_topic` alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port, self.secured_port = free_port(), free_port()
        self.servers, self.secured_servers = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.secured_port}"
        directory.mkdir(parents=True, exist_ok=True)
        self._configuration = directory / "server.properties"
        self._configuration.write_text(
            CONFIGURATION.format(
                port=self.port,
                secured=self.secured_port,
                controller=free_port(),
                data=directory / "data",
                user=USER,
                password=PASSWORD,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Format the storage, start the broker, and wait until it answers."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._configuration)]
        subprocess.run([*JAVA, *format], check=True, capture_output=True)
        log = self._directory / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*JAVA, "kafka.Kafka", str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka does not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def make_topic(self, name: str, partitions: int = 3) -> str:
        """Make a topic, and return its URI."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])
        finally:
            admin.close()
        return f"kafka://{self.servers}/{name}"

    def send(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        try:
            for key, value in records:
                producer.send(topic, key=key, value=value)
            producer.flush()
        finally:
            producer.close()

    def read(self, topic: str) -> list[KafkaRecord]:
        """All records up to the present end, by partition in their order."""
        consumer = KafkaConsumer(bootstrap_servers=self.servers, enable_auto_commit=False)
        try:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            found: list[Any] = []
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                for records in consumer.poll(timeout_ms=500).values():
                    found += records
        finally:
            consumer.close()
        ordered = sorted(found, key=lambda each: (each.partition, each.offset))
        return [KafkaRecord(each.partition, each.offset, each.key, each.value) for each in ordered]

    def _answers(self) -> bool:
        """The port is open when the broker is ready; a client that fails to connect would leave sockets behind."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True
