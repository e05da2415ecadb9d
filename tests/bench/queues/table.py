"""The rows of the benchmark of queues."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.bench.queues import servers
from tests.bench.queues.cycles import Rate, measure
from tests.bench.queues.depth import Depth, measure_depth

Start = Callable[[Path], AbstractContextManager[tuple[int, int]]]


class QueueTable(NamedTuple):
    lines: list[list[str]]
    remarks: list[str]


class Contender(NamedTuple):
    name: str
    start: Start
    client: str


CASES = {"1 client, one by one": (1, 1), "8 clients, one by one": (8, 1), "8 clients, batches of 10": (8, 10)}
NATIVE = [
    Contender("RabbitMQ, quorum queue, aio-pika", servers.rabbitmq, "rabbitmq"),
    Contender("Lavant", servers.lavant, "lavant"),
    Contender("Lavant, --acknowledge-early", lambda home: servers.lavant(home, "--acknowledge-early"), "lavant"),
]
SQS = [
    Contender("moto's SQS server, boto3", servers.moto, "sqs"),
    Contender("Lavant, boto3", servers.lavant, "sqs"),
]
COLUMNS = ("send, receive, acknowledge; 1 KB", *CASES)


def measure_rates(contenders: list[Contender], home: Path) -> dict[str, list[Rate]]:
    """Case by case, all contenders one after the other: what the machine does meanwhile hits them alike."""
    rates: dict[str, list[Rate]] = {contender.name: [] for contender in contenders}
    for clients, batch in CASES.values():
        for number, contender in enumerate(contenders):
            with contender.start(home / f"{contender.client}-{number}-{clients}-{batch}") as (port, _):
                rates[contender.name].append(measure(contender.client, port, clients=clients, batch=batch))
    return rates


def cells(rates: dict[str, list[Rate]]) -> list[list[str]]:
    """Rates, the ratio to the first contender's, and the time of a cycle."""
    first = next(iter(rates.values()))
    return [
        [
            name,
            *(
                f"{rate.messages_per_s:,.0f}/s = {rate.messages_per_s / other.messages_per_s:.1f} ×; "
                f"p50 {rate.p50_ms:.1f}, p99 {rate.p99_ms:.1f} ms"
                for rate, other in zip(of_case, first, strict=True)
            ),
        ]
        for name, of_case in rates.items()
    ]


def describe(depth: Depth) -> str:
    return (
        f"A queue of 1,000,000 messages of 1 KB: a receive takes {depth.deep_us:.0f} µs, from an otherwise empty queue "
        f"{depth.empty_us:.0f} µs ({depth.deep_us / depth.empty_us:.2f} ×); {depth.bytes_each:.0f} bytes a message "
        f"beyond its body; restart after kill -9 in {depth.restart_s:.1f} s."
    )


def measure_queues() -> QueueTable:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        native, sqs = measure_rates(NATIVE, home), measure_rates(SQS, home)
        return QueueTable([*cells(native), *cells(sqs)], [describe(measure_depth(home))])
