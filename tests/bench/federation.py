"""Publishing through a link between two brokers, beside NATS leaf nodes: rates, and what the hop adds to the delay.

`python -m tests.bench.federation` prints it alone, each row when it is measured.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.publishing import lavant, nats
from tests.bench.publishing.measuring import Figures, measure
from tests.bench.publishing.table import EACH, NATS
from tests.bench.queues import servers
from tests.integration.server_processes import free_port

SECONDS = 2.0
SHARES = (0.5, 0.25)
"""Of the highest rate over a link: the delays of a system with and without a hop are compared at the same rate."""
COLUMNS = (
    "8 topics, 32 subscribers",
    "publications/s",
    "delay at half of the rate over a link, p50",
    "p99",
    "at a quarter, p50",
    "p99",
    "processor time of the servers",
)


class FederationTable(NamedTuple):
    lines: list[list[str]]
    remarks: list[str]


def measure_federation() -> FederationTable:
    """Both systems with and without a hop, in one run."""
    rows = dict(_measured())
    lavant_two, lavant_one, nats_leaf, nats_one = rows.values()
    ratio = lavant_two.publications_per_s / nats_leaf.publications_per_s
    return FederationTable(
        [cells(name, figures) for name, figures in rows.items()],
        [
            f"Over a link, Lavant (durable) publishes {ratio:.2f} times as much as NATS leaf nodes (in memory).",
            f"The hop adds (p50) {_added(lavant_two, lavant_one)}; that of NATS {_added(nats_leaf, nats_one)}.",
        ],
    )


def _added(two: Figures, one: Figures) -> str:
    half, quarter = (over.p50_ms - within.p50_ms for over, within in zip(two.delays, one.delays, strict=True))
    return f"{half:.1f} ms at half rate, {quarter:.1f} ms at a quarter"


def cells(name: str, figures: Figures) -> list[str]:
    delays = [f"{value:.1f} ms" for each in figures.delays for value in (each.p50_ms, each.p99_ms)]
    processor = ", ".join(f"{each.processor_us:.0f}" for each in figures.delays)
    return [name, f"{figures.publications_per_s:,.0f}", *delays, f"{processor} µs"]


def _measured() -> Iterator[tuple[str, Figures]]:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        two = _lavant(home / "two")
        yield "Lavant, publisher and subscribers at two brokers", two
        yield "Lavant, one broker", _lavant(home / "one", of_rate=two.publications_per_s)
        leaf = _nats(home / "leaf")
        yield "NATS, publisher at a leaf node", leaf
        yield "NATS, one server", _nats(home / "nats", of_rate=leaf.publications_per_s)


def _lavant(home: Path, *, of_rate: float | None = None) -> Figures:
    """Over a link; with the rate that this reached, without one."""
    probe = home.with_suffix(".probe")
    with servers.lavant(home, "--name", "B1") as (port, process):
        url = f"lavant://127.0.0.1:{port}"
        if of_rate is not None:
            system = lavant.by_topic(url, each=EACH, processes=(process,))
            return measure(system, probe, seconds=SECONDS, shares=SHARES, of_rate=of_rate)
        with servers.lavant(home.with_name("second"), "--name", "B2", "--join", url) as (second, other):
            at = f"lavant://127.0.0.1:{second}"
            system = lavant.by_topic(url, each=EACH, subscribers_at=at, processes=(process, other))
            return measure(system, probe, seconds=SECONDS, shares=SHARES)


def _nats(home: Path, *, of_rate: float | None = None) -> Figures:
    probe = home.with_suffix(".probe")
    hub, leaf, between = free_port(), free_port(), free_port()
    hub_file, leaf_file = home.with_suffix(".hub"), home.with_suffix(".leaf")
    hub_file.write_text(f'listen: "127.0.0.1:{hub}"\nleafnodes {{ listen: "127.0.0.1:{between}" }}\n')
    leaf_file.write_text(
        f'listen: "127.0.0.1:{leaf}"\nleafnodes {{ remotes = [ {{ url: "nats://127.0.0.1:{between}" }} ] }}\n'
    )
    with _nats_server(hub_file, hub) as process:
        if of_rate is not None:
            system = nats.by_topic(hub, each=EACH, processes=(process,))
            return measure(system, probe, seconds=SECONDS, shares=SHARES, of_rate=of_rate)
        with _nats_server(leaf_file, leaf) as other:
            time.sleep(1.0)  # until the leaf has found the hub
            system = nats.by_topic(leaf, each=EACH, subscribers_port=hub, processes=(process, other))
            return measure(system, probe, seconds=SECONDS, shares=SHARES)


@contextmanager
def _nats_server(file: Path, port: int) -> Iterator[int]:
    """Its process id."""
    process = subprocess.Popen([NATS, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not servers.answers(port):
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    line = "{:<50} {:>15} {:>42} {:>9} {:>17} {:>9} {:>29}"
    print(line.format(*COLUMNS), flush=True)
    for name, figures in _measured():
        print(line.format(*cells(name, figures)), flush=True)
