"""The server part of `lavant demo`: publishers, subscribers, and a check of every delivery."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

from lavant.broker.filters import explain, parse
from lavant.cli.reports.demonstration.audience import WANTED, DemoPublisher, DemoSubscriber
from lavant.cli.reports.demonstration.server import served
from lavant.cli.reports.doctor.server import http_address
from lavant.core.errors import LavantError
from lavant.core.publications.attributes import AttributeValue

PUBLISHERS = 2
ROW_EVERY_S = 1.0
LATE_S_MAX = 10.0


def run_service(console: Console, *, seconds: float, rate: float) -> None:
    """Publish for a while, show the deliveries, and compare them with the expected ones."""
    _show_one_match(console)
    with console.status("starting a server"), served() as url:
        address = http_address(url)
        console.print(f"a server listens at [bold]{url}[/bold] and {address}; in another terminal, try")
        console.print(f"  lavant sub 'volume > 1000000' --url {url}", highlight=False)
        console.print(f'  curl -d \'{{"symbol": "AAB"}}\' {address}/publish\n', highlight=False)
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
            _summary(console, publishers, subscribers)
        finally:
            for subscriber in subscribers:
                subscriber.close()


def _show_one_match(console: Console) -> None:
    filter = parse("class = 'STOCK' and symbol in ('YHOO', 'IBM') and volume > 300000")
    quote: dict[str, AttributeValue] = {"class": "STOCK", "symbol": "YHOO", "volume": 203_400}
    console.print(f"  filter        {filter}", soft_wrap=True)
    console.print("  publication   class='STOCK', symbol='YHOO', volume=203400")
    for line in explain(filter, quote):
        console.print(f"    {'holds' if line.held else '[red]fails[/red]'}   {line.predicate}", highlight=False)
    console.print("  The publication does not match, so it is not delivered. Now with many subscribers:\n")


def _follow(console: Console, publishers: list[DemoPublisher], subscribers: list[DemoSubscriber]) -> None:
    """Print a line per second until everything expected has been delivered."""
    line = "{:>5} {:>10} {:>14} {:>12}   {}"
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


def _summary(console: Console, publishers: list[DemoPublisher], subscribers: list[DemoSubscriber]) -> None:
    table = Table(title="deliveries", title_justify="left")
    table.add_column("subscriber")
    for column in ("expected", "delivered", "missing", "duplicate", "delay p50", "p99"):
        table.add_column(column, justify="right")
    failed = 0
    for each in subscribers:
        due, got = _expected(publishers, each), set(each.ids)
        wrong = len(got - due)
        failed += len(due - got) + wrong
        p50, p99 = np.quantile(each.delays_ms, (0.5, 0.99)) if each.delays_ms else (float("nan"),) * 2
        figures = (len(due), len(got), len(due - got), len(each.ids) - len(got))
        table.add_row(each.name, *(f"{n:,}" for n in figures), f"{p50:.1f} ms", f"{p99:.1f} ms")
    console.print()
    console.print(table)
    if failed:
        raise LavantError(f"{failed} notifications are missing or do not match; this is a bug, please report it")
