"""`lavant federation demo`: a chain of brokers as processes, one of them killed while publications pass."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from lavant import Publication, connect
from lavant.broker.filters import parse
from lavant.client.connection.retries import Retries
from lavant.core.errors import LavantError, MissingComponent
from lavant.core.ids import PublicationId
from lavant.core.publications.attributes import AttributeValue

BATCH = 20
LATE_S_MAX = 60.0
PATIENT = Retries(within_s=120)
"""A broker that was killed may take a while to start again on a busy machine."""
UP_S_MAX = 30.0
STOP_S_MAX = 15.0
SUBSCRIPTION = "wanted"
SYMBOLS = ("AAA", "BBB", "CCC", "DDD")
FILTERS = (
    "symbol = 'AAA'",
    "price > 70",
    "symbol in ('BBB', 'CCC') and price < 60",
    "price between 40 and 45",
    "symbol = 'DDD'",
)
"""Of the subscriber at each broker."""
Quote: TypeAlias = dict[str, AttributeValue]
_ADDRESS = re.compile(r"lavants?://\S+?(?=;)")


class DemoBroker:
    """`lavant serve --name …` with a data directory of its own; it can be killed and started again."""

    def __init__(self, home: Path, name: str, joins: str | None, *options: str) -> None:
        self.name = name
        self.url = ""
        self._home = home / name
        self._options = [*([] if joins is None else ["--join", joins]), *options]
        self._log = (home / f"{name}.log").open("wb")
        self._process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        command = [str(Path(sys.executable).with_name("lavant")), "serve", "--port", port, "--data", str(self._home)]
        command += ["--name", self.name, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _ADDRESS.search(line)
        if found is None:
            raise MissingComponent(
                f"broker {self.name} did not start; it printed {line!r}; try `lavant serve --memory` by itself"
            )
        self.url = found[0]

    def kill(self) -> None:
        """As a crash does it: kill -9."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._end()
        self._log.close()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class FederatedSubscriber:
    """A durable subscription, whose queue is emptied and counted at the end."""

    def __init__(self, broker: DemoBroker, filter: str) -> None:
        self.broker, self.filter = broker, filter
        self.counts: Counter[str] = Counter()
        self._parsed = parse(filter)
        with connect(broker.url) as client:
            client.subscribe(filter, name=SUBSCRIPTION).close()

    def due(self, published: dict[str, Quote]) -> set[str]:
        """Ids of publications that it should get (the oracle)."""
        return {id for id, quote in published.items() if self._parsed.matches(quote)}

    def drain(self, count: int) -> None:
        """Receive and count notifications: as many as are due, and any that come after them."""
        deadline_s = time.monotonic() + LATE_S_MAX
        with connect(self.broker.url, retries=PATIENT) as client:
            queue = client.queue(SUBSCRIPTION)
            while True:
                is_late = self.counts.total() >= count or time.monotonic() > deadline_s
                received = queue.receive(1000, wait_s=0 if is_late else 0.5)
                self.counts.update(json.loads(each.body)["@id"] for each in received)
                if received:
                    queue.acknowledge(*received)
                elif is_late:
                    return


class FederatedPublisher(threading.Thread):
    """Publishes quotes in batches and remembers the accepted ones."""

    def __init__(self, broker: DemoBroker, count: int, publishing: threading.Event) -> None:
        super().__init__(daemon=True)
        self.published: dict[str, Quote] = {}
        self.error: LavantError | None = None
        self._broker, self._count = broker, count
        self._publishing = publishing

    def run(self) -> None:
        try:
            with connect(self._broker.url, retries=PATIENT) as client:
                for start in range(0, self._count, BATCH):
                    batch = [self._quote(number) for number in range(start, min(start + BATCH, self._count))]
                    ids = client.publish_many(batch)
                    self.published.update(zip(ids, (each.attributes for each in batch), strict=True))
                    if start >= self._count // 2:
                        self._publishing.set()
        except LavantError as error:
            self.error = error
        finally:
            self._publishing.set()

    def _quote(self, number: int) -> Publication:
        return Publication(
            attributes={"symbol": SYMBOLS[number % len(SYMBOLS)], "price": number * 37 % 100},
            id=PublicationId(f"{self._broker.name}-{number}"),
        )


def run_federation(console: Console, *, brokers: int, publications: int) -> dict[str, Any]:
    """Figures of the deliveries. Raises if a notification is missing or came twice."""
    with tempfile.TemporaryDirectory(prefix="lavant-federation-") as home, ExitStack() as stack:
        chain: list[DemoBroker] = []
        with console.status("starting brokers"):
            for number in range(brokers):
                joins = chain[-1].url if chain else None
                chain.append(DemoBroker(Path(home), f"B{number + 1}", joins, "--role", "any"))
                stack.callback(chain[-1].stop)
            wait_for_members(chain)
        for broker, before in zip(chain, [None, *chain], strict=False):
            joined = "" if before is None else f", joined {before.name}"
            console.print(f"  {broker.name} listens at {broker.url}{joined}", highlight=False)
        subscribers = [FederatedSubscriber(*each) for each in zip(chain, FILTERS, strict=False)]
        for subscriber in subscribers:
            console.print(f"  at {subscriber.broker.name}: {subscriber.filter}", highlight=False)
        _wait_for_routes(chain)
        half = threading.Event()
        publishers = [FederatedPublisher(broker, publications, half) for broker in (chain[0], chain[-1])]
        for publisher in publishers:
            publisher.start()
        half.wait()
        middle = chain[len(chain) // 2]
        middle.kill()
        console.print(f"\n  {middle.name} is killed (kill -9) while publications pass", highlight=False)
        time.sleep(1.0)
        middle.start()
        console.print(f"  {middle.name} is started again", highlight=False)
        for publisher in publishers:
            publisher.join()
            if publisher.error is not None:
                raise publisher.error
        published = {id: quote for publisher in publishers for id, quote in publisher.published.items()}
        for subscriber in subscribers:
            subscriber.drain(len(subscriber.due(published)))
        return _show(console, subscribers, published)


def wait_for_members(chain: list[DemoBroker]) -> None:
    from lavant.cli.common import ask_http  # noqa: PLC0415

    deadline_s = time.monotonic() + UP_S_MAX
    while any(len(ask_http(broker.url, "/federation", "", None)["members"]) < len(chain) for broker in chain):
        if time.monotonic() > deadline_s:
            raise MissingComponent(f"the brokers did not find each other within {UP_S_MAX:g} s; this is a bug")
        time.sleep(0.05)


def _wait_for_routes(chain: list[DemoBroker]) -> None:
    """Until a subscription of each broker is known at the others: publications before that would not be due."""
    from lavant.cli.common import ask_http  # noqa: PLC0415

    deadline_s = time.monotonic() + UP_S_MAX
    for place, broker in enumerate(chain):
        expected = (place if place else 0, len(chain) - 1 - place)
        while True:
            links = ask_http(broker.url, "/federation", "", None)["links"]
            if sum(link["subscriptions"] for link in links) >= sum(expected):
                break
            if time.monotonic() > deadline_s:
                raise MissingComponent(f"routes did not reach {broker.name} within {UP_S_MAX:g} s; this is a bug")
            time.sleep(0.05)


def _show(console: Console, subscribers: list[FederatedSubscriber], published: dict[str, Quote]) -> dict[str, Any]:
    table = Table(title=f"deliveries of {len(published):,} publications", title_justify="left")
    table.add_column("subscriber at")
    for column in ("due", "delivered", "missing", "twice"):
        table.add_column(column, justify="right")
    wrong = 0
    deliveries = []
    for each in subscribers:
        due, got = each.due(published), set(each.counts)
        twice = sum(1 for count in each.counts.values() if count > 1)
        wrong += len(due - got) + len(got - due) + twice
        counts = {"due": len(due), "delivered": len(got), "missing": len(due - got), "twice": twice}
        table.add_row(each.broker.name, *(f"{count:,}" for count in counts.values()))
        deliveries.append({"broker": each.broker.name, **counts})
    console.print()
    console.print(table)
    if wrong:
        raise LavantError(f"{wrong} notifications are missing, wrong or came twice; this is a bug, please report it")
    return {"published": len(published), "deliveries": deliveries}
