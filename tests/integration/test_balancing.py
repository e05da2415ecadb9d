"""Balancing between real processes: subscriptions leave the weak broker, and nothing is lost or comes twice."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.federations import Broker, wait_for_members, wait_for_subscriptions, wait_until
from typer.testing import CliRunner

import lavant
from lavant.cli.federation import federation
from lavant.client.connection.retries import Retries
from lavant.core.errors import InvalidValue

SUBSCRIPTIONS = 12
MANY = 150
"""Enough for moves to take a while."""
PRICES = 60
BATCH = 10
PAUSE_S = 0.1
BALANCED_S_MAX = 180.0


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """A strong one, where publications enter, and a weak one, which can match but not send what comes."""
    ends = "--require-advertisements"
    strong = Broker(tmp_path, "B1", options=(ends, "--bandwidth", "400000", "--matching-rate", "300000"))
    weak = Broker(tmp_path, "B2", strong, options=(ends, "--bandwidth", "40000", "--matching-rate", "30000"))
    try:
        wait_for_members(strong, weak)
        yield strong, weak
    finally:
        for each in (weak, strong):
            each.kill()


class Publishing(threading.Thread):
    """Publishes numbers until it is stopped."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.is_over = threading.Event()
        self._broker = broker

    def run(self) -> None:
        with lavant.connect(self._broker.url, retries=Retries(within_s=60)) as client:
            while not self.is_over.wait(PAUSE_S):
                client.publish_many(
                    {"price": number % PRICES, "number": number} for number in range(self.count, self.count + BATCH)
                )
                self.count += BATCH


def command(*arguments: str, broker: Broker) -> Any:
    result = CliRunner().invoke(federation, ["balance", *arguments, "--json", "--url", broker.url])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def local(broker: Broker) -> list[str]:
    with broker.served.http("/federation/subscriptions") as response:
        return [each["name"] for each in json.load(response)["subscriptions"]]


def movable(broker: Broker) -> list[str]:
    """Subscriptions that are at a broker, and not on their way."""
    with broker.served.http("/federation/subscriptions") as response:
        return [each["name"] for each in json.load(response)["subscriptions"] if each["is_movable"]]


def moved(broker: Broker) -> int:
    count: int = command("status", broker=broker)["moved"]
    return count


def wait_for(condition: Callable[[], bool], broker: Broker, pause_s: float = 0.2) -> None:
    """On a busy machine a sample alone may take half a minute."""
    deadline_s = time.monotonic() + BALANCED_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s, broker.log
        time.sleep(pause_s)


def received(broker: Broker, queue: str, count: int) -> Counter[int]:
    """The numbers in a queue: as many as are due, and any that are there after them."""
    got: Counter[int] = Counter()

    def has_all() -> bool:
        with broker.client() as client:
            got.update(json.loads(body)["number"] for body in client.drain(queue))
        return got.total() >= count

    wait_until(has_all, lambda: (queue, got.total(), count))
    return got


def test_subscriptions_leave_the_weak_broker(brokers: tuple[Broker, Broker]) -> None:
    strong, weak = brokers
    with lavant.connect(strong.url) as client:
        client.advertise("price >= 0", name="prices")
    for number in range(SUBSCRIPTIONS):
        weak.subscribe(f"price >= {number} and price < {number + 30}", f"s{number}")
    wait_for_subscriptions(strong, "B2", SUBSCRIPTIONS)
    assert command("status", broker=weak)["is_on"] is False
    with pytest.raises(InvalidValue, match="there is no such broker; there are B2, B1"):
        CliRunner().invoke(federation, ["balance", "on", "--broker", "B9", "--url", weak.url], catch_exceptions=False)

    publishing = Publishing(strong)
    publishing.start()
    try:
        assert command("on", broker=weak) == {name: {"is_on": True, "fault": None} for name in ("B2", "B1")}
        wait_for(lambda: moved(weak) > 0, weak)
        command("off", "--broker", "B2", broker=weak)
    finally:
        publishing.is_over.set()
        publishing.join()

    [decision] = command("why", broker=weak)
    assert decision["session"].startswith("B2/")
    assert decision["moves"] == moved(weak) == len(local(strong))
    assert decision["predicted"]["B2"]["output"] < decision["before"]["B2"]["output"]
    assert sorted(local(strong) + local(weak)) == sorted(f"s{number}" for number in range(SUBSCRIPTIONS))
    metric = 'lavant_balancing_moves_total{outcome="completed"}'
    assert weak.served.metric(metric) == decision["moves"]

    for number in range(SUBSCRIPTIONS):
        name = f"s{number}"
        due = Counter(n for n in range(publishing.count) if number <= n % PRICES < number + 30)
        assert received(strong if name in local(strong) else weak, name, due.total()) == due, name


def cluster_options(role: str, capacity: int) -> tuple[str, ...]:
    """Each subscription wants half of what is published, 100 a second; a broker of capacity 1 can send to a few."""
    rates = ("--bandwidth", str(25_000 * capacity), "--matching-rate", str(30_000 * capacity))
    return ("--require-advertisements", "--role", role, "--balance", *rates)


@pytest.fixture
def clusters(tmp_path: Path, edges: int) -> Iterator[tuple[Broker, list[Broker], list[Broker]]]:
    """A head where publications enter, its edges, and those of another head, which are stronger."""
    brokers = [Broker(tmp_path, "H1", options=cluster_options("head", 4))]
    try:
        brokers.append(Broker(tmp_path, "H2", brokers[0], options=cluster_options("head", 4)))
        for head, capacity in ((0, 1), (1, 4)):
            for number in range(edges):
                name, options = f"E{head + 1}{number + 1}", cluster_options("edge", capacity)
                brokers.append(Broker(tmp_path, name, brokers[head], options=options))
        wait_for_members(*brokers)
        yield brokers[0], brokers[2 : 2 + edges], brokers[2 + edges :]
    finally:
        for each in brokers:
            each.kill()


@pytest.mark.parametrize("edges", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_subscriptions_move_to_another_cluster(clusters: tuple[Broker, list[Broker], list[Broker]], edges: int) -> None:
    head, weak, strong = clusters
    with lavant.connect(head.url) as client:
        client.advertise("price >= 0", name="prices")
    names = [f"s{number}" for number in range(SUBSCRIPTIONS * edges)]
    for number, name in enumerate(names):
        weak[0].subscribe(f"price >= {number} and price < {number + 30}", name)
    publishing = Publishing(head)
    publishing.start()
    try:
        wait_for(lambda: any(movable(each) for each in strong), head)
        wait_for(lambda: len(where(names, *weak, *strong)) == len(names), head)
    finally:
        publishing.is_over.set()
        publishing.join()
    status = command("status", broker=head)
    assert (status["cluster"], [each["broker"] for each in status["peers"]]) == ("H1", ["H2"])
    assert not local(head), "heads take no subscriptions"
    wait_for(lambda: len(where(names, *weak, *strong)) == len(names), head)
    places = where(names, *weak, *strong)
    for number, name in enumerate(names):
        due = Counter(n for n in range(publishing.count) if number <= n % PRICES < number + 30)
        assert received(places[name], name, due.total()) == due, name


def where(names: list[str], *brokers: Broker) -> dict[str, Broker]:
    """Brokers of the subscriptions that are not on their way."""
    return {name: broker for broker in brokers for name in movable(broker) if name in names}


@pytest.mark.soak
@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("victim", ["B1", "B2"])
def test_kill_9_in_a_session_completes_or_undoes_each_move(
    brokers: tuple[Broker, Broker], victim: str, pause_s: float
) -> None:
    strong, weak = brokers
    names = [f"s{number}" for number in range(MANY)]
    with lavant.connect(strong.url) as client:
        client.advertise("price >= 0", name="prices")
    for number, name in enumerate(names):
        weak.subscribe(f"price >= {number % 30} and price < {number % 30 + 30}", name)
    publishing = Publishing(strong)
    publishing.start()
    try:
        command("on", broker=weak)
        wait_for(lambda: len(movable(weak)) < MANY, weak, pause_s=0)
        time.sleep(pause_s)
        broker = strong if victim == "B1" else weak
        broker.kill()
        broker.start()
        wait_until(lambda: sorted(movable(strong) + movable(weak)) == sorted(names), lambda: weak.log[-2000:])
    finally:
        publishing.is_over.set()
        publishing.join()
    assert local(strong), "some had moved, or had begun to"
    for number, name in enumerate(names):
        due = Counter(n for n in range(publishing.count) if number % 30 <= n % PRICES < number % 30 + 30)
        assert received(strong if name in local(strong) else weak, name, due.total()) == due, name
    with lavant.connect(strong.url) as client:
        assert client.publish_many({"price": 29, "number": -1} for _ in range(2))
    for name in names:
        assert received(strong if name in local(strong) else weak, name, 2) == {-1: 2}, name
