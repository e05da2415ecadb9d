"""`lavant federation demo --balance`: brokers of different strength, all subscribers at the weakest; they move."""

from __future__ import annotations

import json
import math
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lavant import Publication, connect
from lavant.broker.filters import Filter, parse
from lavant.cli.common import ask_http
from lavant.cli.reports.charts import Chart, ChartLine, picture, write_picture
from lavant.cli.reports.demonstration.federation import LATE_S_MAX, PATIENT, DemoBroker, Quote, wait_for_members
from lavant.core.errors import LavantError
from lavant.core.ids import PublicationId

STRENGTHS = (1, 2, 4, 8)
"""Of the brokers with subscribers, as multiples of the weakest."""
RATE_PER_S = 20
PRICES = 100
WIDTHS = (5, 10, 20)
"""Of the ranges of prices that subscribers want."""
PADDING = "." * 200
CONSUMERS = 2
"""Threads that receive for all subscribers."""
INDICES = ("output", "matching_delay_s")
CLOSE = 0.2
"""Brokers are balanced when their indices differ by so much of the largest difference that was seen."""
QUIET_S = 5.0
"""Before balancing is turned on."""
SETTLED_S = 5.0
BALANCED_S_MAX = 180.0
LOOK_S = 1.0


class MovingSubscribers:
    """Durable subscriptions, whose queues are read all the time, wherever they are."""

    def __init__(self, url: str, count: int) -> None:
        self.filters: dict[str, Filter] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.received: list[tuple[str, float]] = []
        """Ids, and when they came."""
        self.error: LavantError | None = None
        self._url = url
        self._is_over = threading.Event()
        with connect(url, retries=PATIENT) as client:
            for number in range(count):
                low = number * 7 % PRICES
                filter = f"price >= {low} and price < {low + WIDTHS[number % len(WIDTHS)]}"
                client.subscribe(filter, name=f"s{number}").close()
                self.filters[f"s{number}"], self.counts[f"s{number}"] = parse(filter), Counter()
        self._threads = [
            threading.Thread(target=self._receive, args=(list(self.filters)[part::CONSUMERS],), daemon=True)
            for part in range(CONSUMERS)
        ]
        for thread in self._threads:
            thread.start()

    def due(self, name: str, published: dict[str, Quote]) -> set[str]:
        """Ids of publications that a subscription should get (the oracle)."""
        return {id for id, quote in published.items() if self.filters[name].matches(quote)}

    def finish(self, published: dict[str, Quote]) -> None:
        """Wait for what is due, or for a while; then read once more."""
        due = {name: len(self.due(name, published)) for name in self.filters}
        deadline_s = time.monotonic() + LATE_S_MAX
        while any(self.counts[name].total() < due[name] for name in due) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def _receive(self, names: list[str]) -> None:
        try:
            with connect(self._url, retries=PATIENT) as client:
                queues = {name: client.queue(name) for name in names}
                is_last = False
                while not is_last:
                    is_last = self._is_over.is_set()
                    for name, queue in queues.items():
                        received = queue.receive(1000, wait_s=0)
                        ids, now_s = [json.loads(each.body)["@id"] for each in received], time.monotonic()
                        self.counts[name].update(ids)
                        self.received.extend((id, now_s) for id in ids)
                        if received:
                            queue.acknowledge(*received)
        except LavantError as error:
            self.error = error


class SteadyPublisher(threading.Thread):
    """Publishes at a constant rate until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.published: dict[str, Quote] = {}
        self.sent_s: dict[str, float] = {}
        self.error: LavantError | None = None
        self._url = url
        self._is_over = threading.Event()

    def run(self) -> None:
        number = 0
        try:
            with connect(self._url, retries=PATIENT) as client:
                while not self._is_over.wait(1 / RATE_PER_S):
                    number += 1
                    quote: Quote = {"price": number * 37 % PRICES, "note": PADDING}
                    id = PublicationId(f"p{number}")
                    self.sent_s[id] = time.monotonic()
                    client.publish(Publication(attributes=quote, id=id))
                    self.published[id] = quote
        except LavantError as error:
            self.error = error

    def finish(self) -> None:
        self._is_over.set()
        self.join()
        if self.error is not None:
            raise self.error


class BalancingCourse(msgspec.Struct):
    """When something happened, by the clock of this process."""

    begun_s: float
    """When the first views were taken."""
    started_s: float
    """When balancing was turned on."""
    seen: list[tuple[float, list[dict[str, Any]]]] = msgspec.field(default_factory=list)
    """Seconds since then, and the views of all brokers."""
    planned: int = 0
    """Moves of all decisions."""
    moving_s: float = math.inf
    """When the first subscriptions were about to move."""
    moved_s: float = math.inf
    """When the last ones had moved."""
    is_balanced: bool = False
    widest: dict[str, float] = msgspec.field(default_factory=dict)
    """By index, the largest difference between brokers."""
    even_s: float = math.inf
    """Since when they are even."""

    def see(self, views: list[dict[str, Any]], now_s: float) -> None:
        self.seen.append((now_s - self.begun_s, views))
        spreads = {}
        for index in INDICES:
            values = [view["load"][index] for view in views]
            spreads[index] = max(values) - min(values)
            self.widest[index] = max(spreads[index], self.widest.get(index, 0.0))
        has_moved = any(view["moved"] for view in views)
        is_even = has_moved and all(spreads[index] <= CLOSE * self.widest[index] for index in INDICES)
        self.even_s = min(self.even_s, now_s) if is_even else math.inf
        self.is_balanced = now_s - self.even_s >= SETTLED_S
        planned = sum(each["moves"] for view in views for each in view["decisions"])
        if planned and self.moving_s == math.inf:
            self.moving_s = now_s - LOOK_S
        if planned > self.planned:
            self.planned, self.moved_s = planned, math.inf
        if planned and planned == sum(view["moved"] + view["failed"] for view in views):
            self.moved_s = min(self.moved_s, now_s)

    @property
    def pause_ms(self) -> float | None:
        """For so long, subscriptions that moved got nothing (p99 of the broker where that is highest)."""
        pauses = [view["pause_ms_p99"] for view in self.seen[-1][1] if view["pause_ms_p99"] is not None]
        return max(pauses, default=None)

    def picture(self) -> str:
        """Subscriptions and output of each broker over time."""
        times_s = [seconds for seconds, _ in self.seen]
        names = [view["name"] for view in self.seen[0][1]]
        labels = [f"{name} (strength {strength})" for name, strength in zip(names, STRENGTHS, strict=False)]

        def chart(title: str, y_label: str, index: str) -> Chart:
            columns = zip(*([view["load"][index] for view in views] for _, views in self.seen), strict=True)
            lines = [ChartLine(label, times_s, ys) for label, ys in zip(labels, columns, strict=True)]
            return Chart(title, "seconds", y_label, lines, choice=("balancing on", self.started_s - self.begun_s))

        return picture(
            [
                chart("Subscriptions of each broker", "subscriptions", "subscriptions"),
                chart("Output utilisation", "bytes out by bandwidth", "output"),
            ]
        )

    def phase(self, time_s: float) -> str:
        if time_s < self.moving_s:
            return "before"
        return "while they move" if time_s < self.moved_s else "after"


class BalancingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    balanced_s: float
    """From turning balancing on until the loads stayed even."""
    moved: int
    pause_ms: float
    """p99, while neither broker delivered to a subscription."""
    delays_s: dict[str, tuple[float, float]]
    """By phase: p50 and p99 from publishing to receiving."""
    due: int
    delivered: int
    missing: int
    twice: int


def run_balancing(
    console: Console, *, brokers: int, subscribers: int, clusters: int = 1, picture_path: Path | None = None
) -> BalancingFigures:
    """Raises if the brokers are not balanced in time, or a notification is missing or came twice."""
    with tempfile.TemporaryDirectory(prefix="lavant-balancing-") as home, ExitStack() as stack:
        with console.status("starting brokers"):
            heads = _start_heads(Path(home), clusters, stack)
            edges = _start_edges(Path(home), heads, STRENGTHS[: brokers - 1], subscribers, stack)
            wait_for_members([*heads, *edges])
        core = heads[0]
        with connect(core.url) as client:
            client.advertise(f"price >= 0 and price < {PRICES}", name="quotes")
        readers = MovingSubscribers(edges[0].url, subscribers)
        console.print(
            f"  publications enter at {core.name}, {RATE_PER_S} a second; all {subscribers} subscribers are at "
            f"{edges[0].name}, the weakest",
            highlight=False,
        )
        publisher = SteadyPublisher(core.url)
        publisher.start()
        course = BalancingCourse(time.monotonic(), time.monotonic() + QUIET_S)
        _watch(console, heads, edges, course)
        publisher.finish()
        readers.finish(publisher.published)
        delays = _delays(readers, publisher, course)
        _show_delays(console, delays, course)
        deliveries = _show(console, readers, publisher.published)
        if picture_path is not None:
            write_picture(picture_path, course.picture())
        if not course.is_balanced:
            raise LavantError(f"the brokers were not balanced within {BALANCED_S_MAX:g} s; is this machine busy?")
        percentiles = {phase: np.percentile(found, [50, 99]).tolist() for phase, found in delays.items() if found}
        return BalancingFigures(
            balanced_s=course.even_s - course.started_s,
            moved=sum(view["moved"] for view in course.seen[-1][1]),
            pause_ms=math.inf if course.pause_ms is None else course.pause_ms,
            delays_s={phase: (p50, p99) for phase, (p50, p99) in percentiles.items()},
            **deliveries,
        )


def _start_heads(home: Path, clusters: int, stack: ExitStack) -> list[DemoBroker]:
    """A head for each cluster, in a chain."""
    heads: list[DemoBroker] = []
    for number in range(clusters):
        name, joins = "B0" if number == 0 else f"B{number}0", heads[-1].url if heads else None
        heads.append(DemoBroker(home, name, joins, "--require-advertisements", "--role", "head"))
        stack.callback(heads[-1].stop)
    return heads


def _start_edges(
    home: Path, heads: list[DemoBroker], strengths: Sequence[int], subscribers: int, stack: ExitStack
) -> list[DemoBroker]:
    """The weaker half belongs to the first of two clusters."""
    edges: list[DemoBroker] = []
    for number, strength in enumerate(strengths):
        head = heads[number * len(heads) // len(strengths)]
        edges.append(DemoBroker(home, f"B{number + 1}", head.url, *_options(strength, subscribers)))
        stack.callback(edges[-1].stop)
    return edges


def _options(strength: int, subscribers: int) -> list[str]:
    """The weakest broker can match, but not send, what all subscribers want."""
    matching = 1.5 * RATE_PER_S * subscribers
    bandwidth = 0.5 * RATE_PER_S * subscribers * (len(PADDING) + 60) * sum(WIDTHS) / len(WIDTHS) / PRICES
    capacity = ["--matching-rate", str(matching * strength), "--bandwidth", str(round(bandwidth * strength))]
    return ["--require-advertisements", *capacity]


def _watch(console: Console, heads: list[DemoBroker], edges: list[DemoBroker], course: BalancingCourse) -> None:
    """Turn balancing on after a while, and show the brokers until they are balanced, or for a while."""
    is_on = False
    with Live(console=console, refresh_per_second=4) as live:
        while not course.is_balanced:
            now_s = time.monotonic()
            if not is_on and now_s >= course.started_s:
                is_on, course.started_s = True, now_s
                for broker in (*heads, *edges):
                    ask_http(broker.url, "/federation/balancing", "", None, method="PUT", body={"is_on": True})
            views = [ask_http(each.url, "/federation/balancing", "", None) for each in edges]
            now_s = time.monotonic()
            course.see(views, now_s)
            live.update(_table(views, max(0.0, now_s - course.started_s)))
            if now_s - course.started_s >= BALANCED_S_MAX:
                return
            time.sleep(LOOK_S)


def _table(views: list[dict[str, Any]], seconds: float) -> Group:
    table = Table(title=f"after {seconds:.0f} s", title_justify="left")
    table.add_column("broker")
    table.add_column("status", min_width=11)
    for column in ("strength", "subscriptions", "input", "output", "moved"):
        table.add_column(column, justify="right")
    for view, strength in zip(views, STRENGTHS, strict=False):
        load = view["load"]
        table.add_row(
            view["name"],
            view["status"],
            str(strength),
            f"{load['subscriptions']:,}",
            f"{load['input']:.2f}",
            f"{load['output']:.2f}",
            f"{view['moved']:,}",
        )
    decisions = [
        f"{view['name']}: {each['action']}, because {each['reason']}"
        for view in views
        for each in reversed(view["decisions"])
        if each["moves"]
    ]
    return Group(table, *map(Text, decisions))


def _delays(readers: MovingSubscribers, publisher: SteadyPublisher, course: BalancingCourse) -> dict[str, list[float]]:
    """Seconds from publishing to receiving, by phase."""
    delays: dict[str, list[float]] = {"before": [], "while they move": [], "after": []}
    for id, received_s in readers.received:
        sent_s = publisher.sent_s[id]
        delays[course.phase(sent_s)].append(received_s - sent_s)
    return delays


def _show_delays(console: Console, delays: dict[str, list[float]], course: BalancingCourse) -> None:
    table = Table(title="from publishing to receiving", title_justify="left")
    table.add_column("published")
    for column in ("notifications", "p50", "p99"):
        table.add_column(column, justify="right")
    for phase, found in delays.items():
        if found:
            percentiles = (f"{value:.2f} s" for value in np.percentile(found, [50, 99]))
            table.add_row(phase, f"{len(found):,}", *percentiles)
    console.print()
    console.print(table)
    if course.pause_ms is not None:
        text = f"while it moved, a subscription got nothing for {course.pause_ms:.0f} ms (p99)"
        console.print(text, highlight=False)


def _show(console: Console, readers: MovingSubscribers, published: dict[str, Quote]) -> dict[str, int]:
    """Figures of the deliveries. Raises if a notification is missing or came twice."""
    due = missing = delivered = twice = wrong = 0
    for name, counts in readers.counts.items():
        wanted = readers.due(name, published)
        due += len(wanted)
        delivered += len(counts)
        missing += len(wanted - set(counts))
        wrong += len(set(counts) - wanted)
        twice += sum(1 for count in counts.values() if count > 1)
    table = Table(title=f"deliveries of {len(published):,} publications", title_justify="left")
    for column in ("subscribers", "due", "delivered", "missing", "twice"):
        table.add_column(column, justify="right")
    table.add_row(*(f"{number:,}" for number in (len(readers.counts), due, delivered, missing, twice)))
    console.print(table)
    if missing or wrong or twice:
        faults = f"{missing} notifications are missing, {wrong} are wrong, {twice} came twice"
        raise LavantError(f"{faults}; this is a bug, please report it")
    return {"due": due, "delivered": delivered, "missing": missing, "twice": twice}
