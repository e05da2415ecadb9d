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
COLUMNS = ("8 topics, 32 subscribers", "publications/s", "notifications/s", "delay at half rate p50", "p99")


class FederationTable(NamedTuple):
    lines: list[list[str]]
    remarks: list[str]


def measure_federation() -> FederationTable:
    """Both systems with and without a hop, in one run."""
    rows = dict(_measured())
    lavant_two, nats_leaf, lavant_one, nats_one = rows.values()
    ratio = lavant_two.publications_per_s / nats_leaf.publications_per_s
    return FederationTable(
        [cells(name, figures) for name, figures in rows.items()],
        [
            f"Over a link, Lavant (durable) publishes {ratio:.2f} times as much as NATS leaf nodes (in memory).",
            f"The hop adds {lavant_two.p50_ms - lavant_one.p50_ms:.1f} ms at half rate (p50), that of NATS "
            f"{nats_leaf.p50_ms - nats_one.p50_ms:.1f} ms.",
        ],
    )


def cells(name: str, figures: Figures) -> list[str]:
    rates = (f"{figures.publications_per_s:,.0f}", f"{figures.notifications_per_s:,.0f}")
    return [name, *rates, f"{figures.p50_ms:.1f} ms", f"{figures.p99_ms:.1f} ms"]


def _measured() -> Iterator[tuple[str, Figures]]:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        yield "Lavant, publisher and subscribers at two brokers", _lavant(home / "two", is_federated=True)
        yield "NATS, publisher at a leaf node", _nats(home / "leaf", is_federated=True)
        yield "Lavant, one broker", _lavant(home / "one", is_federated=False)
        yield "NATS, one server", _nats(home / "nats", is_federated=False)


def _lavant(home: Path, *, is_federated: bool) -> Figures:
    probe = home.with_suffix(".probe")
    with servers.lavant(home, "--name", "B1") as (port, _):
        url = f"lavant://127.0.0.1:{port}"
        if not is_federated:
            return measure(lavant.by_topic(url, each=EACH), probe, seconds=SECONDS)
        with servers.lavant(home.with_name("second"), "--name", "B2", "--join", url) as (second, _):
            system = lavant.by_topic(url, each=EACH, subscribers_at=f"lavant://127.0.0.1:{second}")
            return measure(system, probe, seconds=SECONDS)


def _nats(home: Path, *, is_federated: bool) -> Figures:
    probe = home.with_suffix(".probe")
    hub, leaf, between = free_port(), free_port(), free_port()
    hub_file, leaf_file = home.with_suffix(".hub"), home.with_suffix(".leaf")
    hub_file.write_text(f'listen: "127.0.0.1:{hub}"\nleafnodes {{ listen: "127.0.0.1:{between}" }}\n')
    leaf_file.write_text(
        f'listen: "127.0.0.1:{leaf}"\nleafnodes {{ remotes = [ {{ url: "nats://127.0.0.1:{between}" }} ] }}\n'
    )
    with _nats_server(hub_file, hub):
        if not is_federated:
            return measure(nats.by_topic(hub, each=EACH), probe, seconds=SECONDS)
        with _nats_server(leaf_file, leaf):
            time.sleep(1.0)  # until the leaf has found the hub
            return measure(nats.by_topic(leaf, each=EACH, subscribers_port=hub), probe, seconds=SECONDS)


@contextmanager
def _nats_server(file: Path, port: int) -> Iterator[None]:
    process = subprocess.Popen([NATS, "-c", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not servers.answers(port):
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    line = "{:<50} {:>15} {:>16} {:>23} {:>9}"
    print(line.format(*COLUMNS), flush=True)
    for name, figures in _measured():
        print(line.format(*cells(name, figures)), flush=True)
