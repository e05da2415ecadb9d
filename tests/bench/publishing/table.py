"""The rows of the benchmark of publishing."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.publishing import lavant, nats
from tests.bench.publishing.measuring import SLICE_S, Figures, measure
from tests.bench.queues import servers
from tests.integration.server_processes import free_port

SUBSCRIPTIONS = 100_000
SUBSCRIBERS = (1, 10, 100)
EACH = 4
"""Subscribers of a topic."""
SECONDS = 8.0
NATS = "/usr/sbin/nats-server"

COLUMNS = ("publish → in the subscriber's hands", "publications/s", "notifications/s", "delay at half rate p50", "p99")


class PublishingTable(NamedTuple):
    lines: list[list[str]]
    remarks: list[str]


def measure_publishing() -> PublishingTable:
    with tempfile.TemporaryDirectory(prefix="lavant-bench-") as directory:
        home = Path(directory)
        content = [(count, *_by_content(home / f"content-{count}", count)) for count in SUBSCRIBERS]
        topics = _by_topic(home / "topics")
        beside = _nats(home / "nats")
    lines = [
        *(
            _line(f"{SUBSCRIPTIONS:,} stock subscriptions, {count} {_subscribers(count)}, Lavant", figures)
            for count, figures, _ in content
        ),
        _line(f"{8 * EACH} subscribers of 8 topics, Lavant", topics),
        _line(f"{8 * EACH} subscribers of 8 topics, NATS", beside),
    ]
    all_of_them = [*(figures for _, figures, _ in content), topics, beside]
    ratio = topics.notifications_per_s / beside.notifications_per_s
    return PublishingTable(
        lines,
        [
            f"{SUBSCRIPTIONS:,} subscriptions came in {content[0][2]:.0f} s. Lavant syncs every publication before it "
            "answers and has every notification acknowledged; NATS keeps nothing and asks for no receipt. By topic, "
            f"Lavant delivers {ratio:.2f} × as many notifications as NATS.",
            f"Delays are those of {sum(each.slices for each in all_of_them)} slices of {SLICE_S:.0f} seconds; in "
            f"{sum(each.discarded for each in all_of_them)} more the disk became slow or stalled.",
        ],
    )


def _by_content(home: Path, subscribers: int) -> tuple[Figures, float]:
    with servers.lavant(home) as (port, _):
        url = f"lavant://127.0.0.1:{port}"
        began = time.monotonic()
        asyncio.run(lavant.subscribe_stock(url, subscriptions=SUBSCRIPTIONS, queues=subscribers))
        took_s = time.monotonic() - began
        return measure(lavant.by_content(url, queues=subscribers), home.with_suffix(".probe"), seconds=SECONDS), took_s


def _by_topic(home: Path) -> Figures:
    with servers.lavant(home) as (port, _):
        system = lavant.by_topic(f"lavant://127.0.0.1:{port}", each=EACH)
        return measure(system, home.with_suffix(".probe"), seconds=SECONDS)


def _nats(home: Path) -> Figures:
    port = free_port()
    process = subprocess.Popen(
        [NATS, "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not servers.answers(port):
            time.sleep(0.05)
        return measure(nats.by_topic(port, each=EACH), home.with_suffix(".probe"), seconds=SECONDS)
    finally:
        process.terminate()
        process.wait()


def _subscribers(count: int) -> str:
    return "subscriber" if count == 1 else "subscribers"


def _line(what: str, figures: Figures) -> list[str]:
    return [
        what,
        f"{figures.publications_per_s:,.0f}",
        f"{figures.notifications_per_s:,.0f}",
        f"{figures.p50_ms:.1f} ms",
        f"{figures.p99_ms:.1f} ms",
    ]
