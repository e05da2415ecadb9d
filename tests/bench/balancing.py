"""Balancing: what sampling costs, how quickly a broker is evacuated, and a live run with 500 subscribers.

`python -m tests.bench.balancing` prints it alone, each row when it is measured.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from rich.console import Console
from tests.bench.press import SUBSCRIPTIONS, measure_press
from tests.bench.queues import servers
from tests.integration.frames import FrameClient

from lavant.broker.protocol.subscriptions import Subscribe
from lavant.cli.common import ask_http
from lavant.cli.reports.demonstration.balancing import run_balancing
from lavant.cli.reports.evacuation import Evacuation

EVACUATED = 2000
SUBSCRIBERS = 500
COLUMNS = ("balancing", "measured", "goal")


def measure_balancing() -> list[list[str]]:
    return list(_measured())


def _measured() -> Iterator[list[str]]:
    cost = measure_press()
    figure = f"{cost.own:+.1%} processor time; {cost.low:+.1%} to {cost.high:+.1%} by comparison"
    yield [f"a broker that samples {SUBSCRIPTIONS:,} subscriptions", figure, "+3 %"]
    yield from _evacuation()
    yield from _live()


def _evacuation() -> Iterator[list[str]]:
    pauses_ms: list[float] = []

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        answer = ask_http(url, path, "", None, method="GET" if body is None else "POST", body=body, timeout_s=60)
        pauses_ms.extend([answer["pause_ms"]] if "pause_ms" in answer else [])
        return answer

    with (
        tempfile.TemporaryDirectory(prefix="lavant-bench-") as home,
        servers.lavant(Path(home) / "one", "--name", "B1") as (port, _),
        servers.lavant(Path(home) / "two", "--name", "B2", "--join", f"lavant://127.0.0.1:{port}") as (second, _),
    ):
        url = f"lavant://127.0.0.1:{port}"
        while len(ask_http(f"lavant://127.0.0.1:{second}", "/federation", "", None)["members"]) < 2:
            sleep(0.05)
        with FrameClient(port) as client:
            for start in range(0, EVACUATED, 500):
                client.ask_all([Subscribe(_filter(number), f"s{number}") for number in range(start, start + 500)])
        started_s = monotonic()
        result = Evacuation(ask, ["B2"], rate_per_s=1e9).run()
        rate = result["moved"] / (monotonic() - started_s)
    yield [f"evacuation of {EVACUATED:,} subscriptions", f"{rate:.0f} a second", "500 (EMQX's default)"]
    yield ["… pause of a subscription, p99", f"{np.percentile(pauses_ms, 99):.0f} ms", "1,000 ms"]


def _filter(number: int) -> str:
    low = number // 200 * 10
    return f"symbol = 'S{number % 200}' and price > {low} and price < {low + 20}"


def _live() -> Iterator[list[str]]:
    """Raises if a notification is missing or comes twice."""
    found = run_balancing(Console(file=io.StringIO()), brokers=5, subscribers=SUBSCRIBERS)
    text = f"balanced after {found.balanced_s:.0f} s, {found.moved} moved"
    yield [f"{SUBSCRIBERS} subscribers, all at the weakest of four brokers", text, ""]
    yield ["… deliveries, each once", f"{found.due:,} of {found.due:,}", "100 %"]
    yield ["… pause of a subscription, p99", f"{found.pause_ms:.0f} ms", "1,000 ms"]
    for phase, (p50_s, p99_s) in found.delays_s.items():
        yield [f"… delay of what was published {phase}, p50 and p99", f"{p50_s:.2f} and {p99_s:.2f} s", ""]


if __name__ == "__main__":
    for cells in _measured():
        print("{:<70} {:<60} {}".format(*cells), flush=True)
