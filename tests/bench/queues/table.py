"""The rows of the benchmark of queues."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.bench.disk import QUICK_S, Probe
from tests.bench.queues import servers
from tests.bench.queues.cycles import Clients, Cycles, Rate, connected, rate_of
from tests.bench.queues.depth import Depth, measure_depth

Start = Callable[[Path], AbstractContextManager[tuple[int, int]]]


class QueueTable(NamedTuple):
    lines: list[list[str]]
    remarks: list[str]


class Contender(NamedTuple):
    name: str
    start: Start
    client: str


def _early(home: Path) -> AbstractContextManager[tuple[int, int]]:
    return servers.lavant(home, "--acknowledge-early")


SLICES = 5
SLICE_S = 1.0
TRIES_MAX = 15
CASES = {"1 client, one by one": (1, 1), "8 clients, one by one": (8, 1), "8 clients, batches of 10": (8, 10)}
NATIVE = [
    Contender("RabbitMQ, quorum queue, lean client", servers.rabbitmq, "rabbitmq"),
    Contender("Lavant, lean client", servers.lavant, "lavant, lean"),
    Contender("Lavant --acknowledge-early, lean client", _early, "lavant, lean, early"),
    Contender("Lavant, its own client", servers.lavant, "lavant"),
]
SQS = [
    Contender("moto's SQS server, boto3", servers.moto, "sqs"),
    Contender("Lavant, boto3", servers.lavant, "sqs"),
    Contender("a server that does nothing, boto3", servers.instant, "sqs"),
]
COLUMNS = ("send, receive, acknowledge; 1 KB", *CASES)


class Slices:
    """Of a contender in one case."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.kept: list[Cycles] = []
        self.discarded: list[Cycles] = []

    def add(self, probe: Probe) -> None:
        """One more. If the disk was quick before and is slow afterwards, it says nothing."""
        probe.wait_until_quick()
        cycles = self._clients.run(SLICE_S)
        (self.kept if probe.is_quick() else self.discarded).append(cycles)


def measure_rates(contenders: list[Contender], home: Path, probe: Probe) -> tuple[dict[str, list[Rate]], str]:
    """Case by case, all contenders in turn, many times: what the machine does meanwhile hits them alike."""
    rates: dict[str, list[Rate]] = {contender.name: [] for contender in contenders}
    discarded = dict.fromkeys(rates, 0)
    with ExitStack() as started:
        ports = [started.enter_context(each.start(home / each.name.replace(" ", "-")))[0] for each in contenders]
        for clients, batch in CASES.values():
            with ExitStack() as running:
                slices = {
                    each.name: Slices(running.enter_context(connected(each.client, port, clients=clients, batch=batch)))
                    for each, port in zip(contenders, ports, strict=True)
                }
                for _ in range(TRIES_MAX):
                    for of_case in slices.values():
                        if len(of_case.kept) < SLICES:
                            of_case.add(probe)
            for name, of_case in slices.items():
                kept = of_case.kept if of_case.kept else of_case.discarded
                rates[name].append(rate_of(kept, batch=batch, seconds=SLICE_S))
                discarded[name] += len(of_case.discarded)
    return rates, ", ".join(f"{number} ({name})" for name, number in discarded.items())


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


def describe_disk(probe: Probe, discarded: str) -> str:
    quick = np.array([1e6 * sync_s for sync_s in probe.syncs_s if sync_s < QUICK_S])
    return (
        f"A write and sync of 2 KB took {np.median(quick):.0f} µs beside what counts ({quick.min():.0f} to "
        f"{quick.max():.0f}); slices in which it became slower than {1e6 * QUICK_S:.0f} µs do not count: {discarded}."
    )


def measure_queues() -> QueueTable:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory, ExitStack() as closing:
        home = Path(directory)
        probe = Probe(home / "probe")
        closing.callback(probe.close)
        native, discarded_native = measure_rates(NATIVE, home, probe)
        sqs, discarded_sqs = measure_rates(SQS, home, probe)
        disk = describe_disk(probe, f"{discarded_native}, {discarded_sqs}")
        return QueueTable([*cells(native), *cells(sqs)], [disk, describe(measure_depth(home))])
