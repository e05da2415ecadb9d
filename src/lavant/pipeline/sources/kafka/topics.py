"""Addresses of topics, and the options of clients that reach them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from lavant.broker.storage.objects.uris import masked
from lavant.core.errors import InvalidValue, MissingComponent

SCHEME = "kafka://"
PORT = 9092
CONNECT_TIMEOUT_S = 3.0
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_kafka(text: str) -> bool:
    """Whether this names a topic rather than a path.

    >>> is_kafka("kafka://broker/quotes"), is_kafka("quotes.jsonl")
    (True, False)
    """
    return text.lower().startswith("kafka:")


class KafkaTopic(NamedTuple):
    """A topic, and the brokers to ask first."""

    servers: str
    """HOST:PORT, or several with commas between them."""
    name: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """
        >>> KafkaTopic.parse("kafka://one:9092,two/quotes")
        KafkaTopic(servers='one:9092,two:9092', name='quotes')
        """
        hosts, slash, name = uri[len(SCHEME) :].partition("/")
        addresses = [_ADDRESS.fullmatch(address) for address in hosts.split(",")]
        if not uri.lower().startswith(SCHEME) or not slash or not all(addresses) or not _TOPIC.fullmatch(name):
            raise InvalidValue(
                f"{uri!r} names no topic of Kafka; write kafka://HOST:{PORT}/TOPIC, with several hosts separated by "
                "commas, and a topic of letters, digits, '.', '_' and '-'"
            )
        found = [each for each in addresses if each is not None]
        return cls(",".join(f"{each['host']}:{each['port'] or PORT}" for each in found), name)

    def __str__(self) -> str:
        return f"{SCHEME}{self.servers}/{self.name}"

    def check(self) -> None:
        """Raise in one line if none of the servers answers; Kafka's client would try for minutes."""
        failures = []
        for address in self.servers.split(","):
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
            except (OSError, OverflowError) as error:
                failures.append(str(error))
            else:
                return
        raise MissingComponent(f"no Kafka broker answers at {self.servers} ({failures[0]}); is it running?")


def check_topics(input: KafkaTopic, output: KafkaTopic, rejected_topic: str | None, options: dict[str, str]) -> None:
    """Raise in one line for what can be seen without Spark."""
    if input.name in (output.name, rejected_topic) and input.servers == output.servers:
        raise InvalidValue(f"the topic {input.name!r} is both input and output; give the output a topic of its own")
    if rejected_topic is not None and not _TOPIC.fullmatch(rejected_topic):
        raise InvalidValue(f"{rejected_topic!r} is no name of a topic; use letters, digits, '.', '_' and '-'")
    for key, reason in REFUSED_OPTIONS.items():
        if key in options:
            raise InvalidValue(f"option {key!r} cannot be set: {reason}")
    for topic in dict.fromkeys([input, output]):
        topic.check()


SOURCE_OPTIONS = frozenset(
    {"startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "maxOffsetsPerTrigger", "failOnDataLoss"}
)
"""Options of Spark's source; all others are options of Kafka's client."""
REFUSED_OPTIONS = {
    "bootstrap.servers": "the brokers are in kafka://HOST:PORT/TOPIC",
    "endingOffsets": "a stream has no end; --available-now stops at the topic's present one",
    "minPartitions": "several tasks would read one partition, and its notifications would be out of order",
    "maxRecordsPerPartition": "several tasks would read one partition, and its notifications would be out of order",
}


def parse_options(given: Iterable[str]) -> dict[str, str]:
    """Options given as `key=value`; the value `@FILE` is the content of a file, which keeps a secret off the screen.

    >>> parse_options(["security.protocol=SASL_SSL"])
    {'security.protocol': 'SASL_SSL'}
    """
    options: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise InvalidValue(f"option {key!r} of Kafka has no value; write it as key=value")
        if value.startswith("@"):
            try:
                value = Path(value[1:]).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text"
                raise InvalidValue(f"option {key!r} of Kafka: cannot read {value[1:]}: {reason}") from None
        options[key.strip().removeprefix("kafka.")] = value
    return with_names(options)


_NAMES = {name.lower(): name for name in (*SOURCE_OPTIONS, *REFUSED_OPTIONS)}


def with_names(options: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's source under their own names, which Spark takes in any case; those of clients as given.

    >>> with_names({"startingoffsets": "latest", "client.id": "x"})
    {'startingOffsets': 'latest', 'client.id': 'x'}
    """
    return {_NAMES.get(name.lower(), name): value for name, value in options.items()}


def client_options(options: dict[str, str]) -> dict[str, str]:
    """Those of Kafka's client, under the names that Spark wants."""
    return {f"kafka.{key}": value for key, value in options.items() if key not in SOURCE_OPTIONS}


def source_options(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key in SOURCE_OPTIONS}


SECRETS = "(?i)secret|password|token|access.?key|jaas|credential|keystore|truststore|certificate"
"""Options with such names hold secrets: neither Spark's plans nor error messages show their values."""


def without_secrets(text: str, options: dict[str, str]) -> str:
    """A message without the values of options that hold secrets, and without passwords in them."""
    secrets = [value for key, value in options.items() if re.search(SECRETS, key)]
    secrets += re.findall(r"""password=["']?([^"';]+)""", " ".join(secrets))
    return masked(text, secrets)
