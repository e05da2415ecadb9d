"""The server part of `lavant demo`: publishers, subscribers, and a check of every delivery."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lavant import connect
from lavant.broker.filters import explain, parse
from lavant.cli.reports.demonstration.server import served
from lavant.cli.reports.fetch import http_address
from lavant.client.subscriptions.notification import Notification
from lavant.core.errors import LavantError
from lavant.core.publications.attributes import AttributeValue
from lavant.simulation.workloads.stock import StockWorkload

PUBLISHERS = 2
ROW_EVERY_S = 1.0
LATE_S_MAX = 10.0
SYMBOLS = 40
BATCHES_PER_S = 20

WANTED = {
    "ann": "symbol = 'AAB'",
    "bob": "symbol in ('AAC', 'AAD', 'AAE') and volume > 100000",
    "cem": "high > 60 and low < 70",
    "dia": "symbol like 'AB%' or volume > 1500000",
}
"""Filters by subscriber."""

Quote = dict[str, AttributeValue]


def run_service(console: Console, *, seconds: float, rate: float) -> list[dict[str, Any]]:
    """Publish for a while, show the deliveries, and compare them with the expected ones; figures by subscriber."""
    _show_one_match(console)
    with console.status("starting a server"), served() as url:
        address = http_address(url)
        console.print(f"a server listens at [bold]{url}[/bold] and {address}")
        console.print("in another terminal, try")
        console.print(f"  lavant sub 'volume > 1000000' --url {url}", highlight=False)
        console.print(f'  curl --json \'{{"symbol": "AAB"}}\' {address}/publish\n', highlight=False)
        with console.status("subscribing"):
            subscribers = [DemoSubscriber(url, name, filter) for name, filter in WANTED.items()]
        for each in subscribers:
            console.print(f"  {each.name} subscribes to  {each.filter}", highlight=False, soft_wrap=True)
        console.print()
        try:
            publishers = [
                DemoPublisher(url, number, rate=rate / PUBLISHERS, seconds=seconds) for number in range(PUBLISHERS)
            ]
            for publisher in publishers:
                publisher.start()
            _follow(console, publishers, subscribers)
            return _summary(console, publishers, subscribers)
        finally:
            for subscriber in subscribers:
                subscriber.close()


def _show_one_match(console: Console) -> None:
    filter = parse("class = 'STOCK' and symbol in ('YHOO', 'IBM') and volume > 300000")
    quote: dict[str, AttributeValue] = {"class": "STOCK", "symbol": "YHOO", "volume": 203_400}
    console.print(f"  filter      {filter}", soft_wrap=True)
    console.print("  publication class='STOCK', symbol='YHOO', volume=203400")
    for line in explain(filter, quote):
        console.print(f"    {'holds' if line.held else '[red]fails[/red]'}   {line.predicate}", highlight=False)
    console.print("  It does not match, so it is not delivered. Now with many subscribers:\n")


def _follow(console: Console, publishers: list[DemoPublisher], subscribers: list[DemoSubscriber]) -> None:
    """Print a line per second until everything expected has been delivered."""
    line = "{:>4} {:>9} {:>13} {:>8}  {}"
    console.print(line.format("time", "published", "notifications", "median", "latest"))
    began = time.monotonic()
    ended_s: float | None = None
    row = 0
    while True:
        time.sleep(0.05)
        now_s = time.monotonic() - began
        is_over = not any(publisher.is_alive() for publisher in publishers)
        if is_over and ended_s is None:
            ended_s = now_s
        is_done = ended_s is not None and (_missing(publishers, subscribers) == 0 or now_s > ended_s + LATE_S_MAX)
        if now_s >= (row + 1) * ROW_EVERY_S or is_done:
            row += 1
            delays = [delay for each in subscribers for delay in each.delays_ms[-100:]]
            console.print(
                line.format(
                    f"{now_s:.0f} s",
                    f"{sum(len(each.accepted) for each in publishers):,}",
                    f"{sum(len(each.ids) for each in subscribers):,}",
                    f"{np.median(delays):.1f} ms" if delays else "",
                    _latest(subscribers[row % len(subscribers)]),
                ),
                highlight=False,
            )
        if is_done:
            return


def _latest(subscriber: DemoSubscriber) -> str:
    latest = subscriber.latest
    if latest is None:
        return ""
    quote = latest.attributes
    return f"{subscriber.name} ← {quote['symbol']} {quote['low']}–{quote['high']}, volume {quote['volume']:,}"


def _missing(publishers: list[DemoPublisher], subscribers: list[DemoSubscriber]) -> int:
    return sum(len(_expected(publishers, each) - set(each.ids)) for each in subscribers)


def _expected(publishers: list[DemoPublisher], subscriber: DemoSubscriber) -> set[str]:
    return {id for publisher in publishers for id, quote in publisher.accepted.items() if subscriber.wants(quote)}


def _summary(
    console: Console, publishers: list[DemoPublisher], subscribers: list[DemoSubscriber]
) -> list[dict[str, Any]]:
    table = Table(title="deliveries", title_justify="left")
    table.add_column("subscriber")
    for column in ("expected", "delivered", "missing", "twice", "delay p50", "p99"):
        table.add_column(column, justify="right")
    failed = 0
    deliveries = []
    for each in subscribers:
        due, got = _expected(publishers, each), set(each.ids)
        wrong = len(got - due)
        failed += len(due - got) + wrong
        delays_ms = [round(float(ms), 3) for ms in np.quantile(each.delays_ms, (0.5, 0.99))] if each.delays_ms else []
        counts = {"expected": len(due), "delivered": len(got), "missing": len(due - got)}
        counts["duplicate"] = len(each.ids) - len(got)
        table.add_row(each.name, *(f"{n:,}" for n in counts.values()), *(f"{ms:.1f} ms" for ms in delays_ms))
        deliveries.append({"subscriber": each.name, **counts, "delay_ms_p50_p99": delays_ms})
    console.print()
    console.print(table)
    if failed:
        raise LavantError(f"{failed} notifications are missing or do not match; this is a bug, please report it")
    return deliveries


class DemoSubscriber:
    """Records notifications and their delays."""

    def __init__(self, url: str, name: str, filter: str) -> None:
        self.name, self.filter = name, filter
        self._parsed = parse(filter)
        self.ids: list[str] = []
        self.delays_ms: list[float] = []
        self.latest: Notification | None = None
        self._client = connect(url)
        self._subscription = self._client.subscribe(filter, name=name, handler=self._handle)

    def wants(self, quote: Quote) -> bool:
        """Whether the filter matches the quote (the oracle)."""
        return self._parsed.matches(quote)

    def close(self) -> None:
        self._subscription.close()
        self._client.close()

    def _handle(self, notification: Notification) -> None:
        self.delays_ms.append(1e3 * (time.time() - float(notification.attributes["sent_s"])))
        self.ids.append(notification.id)
        self.latest = notification


class DemoPublisher(threading.Thread):
    """Publishes quotes at a steady rate and records the accepted ones."""

    def __init__(self, url: str, number: int, *, rate: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self._client = connect(url)
        self._number = number
        self._each = max(1, round(rate / BATCHES_PER_S))
        self._rounds = max(1, round(rate * seconds / self._each))
        self._every_s = self._each / rate
        self.accepted: dict[str, Quote] = {}

    def run(self) -> None:
        workload = StockWorkload(symbols=SYMBOLS)
        began = time.monotonic()
        with self._client as client:
            for round_ in range(self._rounds):
                time.sleep(max(0.0, began + round_ * self._every_s - time.monotonic()))
                quotes: list[dict[str, Any]] = workload.publications(
                    self._each, stream=1000 * self._number + round_
                ).to_dicts()
                now_s = time.time()
                ids = client.publish_many([{**quote, "sent_s": now_s} for quote in quotes])
                self.accepted.update(zip(ids, quotes, strict=True))
