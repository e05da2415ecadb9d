"""A Kafka broker of the tests' own, in KRaft mode: on free loopback ports, with a directory of its own."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from tests.integration.server_processes import JAVA, ServerProcess, free_port, require_java_server

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lavant" / "kafka"
BROKER, CONNECTOR = CACHE / "broker", CACHE / "connector"
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
KAFKA = (*JAVA, "-Xmx256m", "-cp", f"{BROKER}/*")


def require_kafka() -> None:
    """Skip, with the reason, where Kafka is not installed; continuous integration fails instead."""
    incomplete = [directory for directory in (BROKER, CONNECTOR) if not (directory / "complete").exists()]
    require_java_server("Kafka", f"{incomplete[0]} is not complete; run tools/kafka" if incomplete else None)


def connector_jars() -> str:
    """For Spark's setting `spark.jars`; empty where the connector is not installed."""
    return ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))) if (CONNECTOR / "complete").exists() else ""


class KafkaRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class KafkaBroker(ServerProcess):
    """One node, its own controller. Topics are made by `make_topic` alone."""

    def __init__(self, directory: Path) -> None:
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
        command = [*KAFKA, "kafka.Kafka", str(self._configuration)]
        super().__init__("Kafka", command, self._is_open, directory / "server.log")

    def start(self) -> None:
        """Format the storage, start the broker, and wait until it answers."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._configuration)]
        subprocess.run([*KAFKA, *format], check=True, capture_output=True)
        super().start()

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

    def _is_open(self) -> bool:
        """The port is open when the broker is ready; a client that fails to connect would leave sockets behind."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True
