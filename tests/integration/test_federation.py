"""Brokers of a federation as processes: deliveries over links, crashes of each of them, and what the commands show."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.federations import Broker, wait_for_members, wait_for_subscriptions, wait_until
from tests.integration.relays import BadLink
from typer.testing import CliRunner, Result

from lavant import Publication, connect
from lavant.cli import commands
from lavant.client.connection.retries import Retries
from lavant.core.errors import UnknownNeighbour
from lavant.core.ids import PublicationId

BATCH = 50


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    """Three brokers, each joined to the one before. Tests share them, and leave no subscription behind."""
    home = tmp_path_factory.mktemp("chain")
    brokers: list[Broker] = []
    try:
        for name in ("B1", "B2", "B3"):
            brokers.append(Broker(home, name, *brokers[-1:]))
        wait_for_members(*brokers)
        yield brokers
    finally:
        for broker in brokers:
            if broker.served.process.poll() is None:
                broker.kill()


def lavant(*arguments: str) -> Result:
    """In this process, which is much quicker than one of its own."""
    return CliRunner().invoke(commands, arguments)


def subscribe_at_all(chain: list[Broker]) -> None:
    """At each broker to everything: no filter covers another's queue."""
    for broker in chain:
        broker.subscribe("price >= 0", "all")
    first, middle, last = chain
    wait_for_subscriptions(first, "B2", 1)
    wait_for_subscriptions(middle, "B1", 1)
    wait_for_subscriptions(middle, "B3", 1)
    wait_for_subscriptions(last, "B2", 1)


def test_a_publication_reaches_every_broker_that_wants_it_once(chain: list[Broker]) -> None:
    first, middle, last = chain
    first.subscribe("symbol = 'IBM'", "ibm")
    last.subscribe("price > 100", "dear")
    wait_for_subscriptions(first, "B2", 1)
    wait_for_subscriptions(last, "B2", 1)
    last.publish({"@id": "1", "symbol": "IBM", "price": 5}, {"@id": "2", "symbol": "HP", "price": 5})
    first.publish({"@id": "3", "symbol": "HP", "price": 500}, {"@id": "4", "symbol": "IBM", "price": 500})
    middle.publish({"@id": "5", "symbol": "IBM", "price": 500})
    wait_until(lambda: first.depth("ibm") == 3 and last.depth("dear") == 3, last.view)
    assert first.received("ibm") == Counter(["1", "4", "5"])
    assert last.received("dear") == Counter(["3", "4", "5"])

    listed = json.loads(lavant("federation", "ls", "--url", first.url, "--json").stdout)
    assert [each["path"] for each in listed] == [["B1"], ["B1", "B2"], ["B1", "B2", "B3"]]
    assert lavant("federation", "tree", "--url", middle.url).stdout == "B2\n├── B1\n└── B3\n"
    shown = lavant("federation", "links", "--url", middle.url)
    assert shown.exit_code == 0, shown
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["B1", "up"], ["B3", "up"]]
    traced = lavant("federation", "trace", '{"symbol": "HP", "price": 500}', "--url", first.url)
    assert traced.exit_code == 0, traced
    assert "delivered to dear" in traced.stdout
    assert [line for line in traced.stdout.splitlines() if line.strip() in ("B1", "B2", "B3")] == [
        "B1",
        "  B2",
        "    B3",
    ]
    nowhere = lavant("federation", "trace", '{"symbol": "HP", "price": 5}', "--url", first.url)
    assert nowhere.exit_code == 1, nowhere
    assert "no subscription here matches" in nowhere.stdout
    with middle.served.http("/metrics") as response:
        metrics = response.read().decode()
    assert 'lavant_link_forwarded_total{neighbour="B1"} 2' in metrics
    first.unsubscribe("ibm")
    last.unsubscribe("dear")


def test_a_fourth_broker_closes_no_cycle_and_leaves_what_waits_for_it(chain: list[Broker], tmp_path: Path) -> None:
    first, _, last = chain
    fourth = Broker(tmp_path, "B4", first, last)
    try:
        wait_for_members(*chain, fourth)
        wait_until(lambda: any("cycle" in (each["fault"] or "") for each in fourth.view()["joins"]), fourth.view)
        [refused] = [each["fault"] for each in fourth.view()["joins"] if each["fault"] is not None]
        assert all(name in refused for name in ("B1", "B2", "B3", "B4"))
        assert "form a tree" in refused
        wait_for_members(*chain, fourth)
        shown = lavant("federation", "links", "--url", fourth.url)
        assert shown.exit_code == 1, shown.output
        assert "cycle" in shown.output

        def linked() -> list[Broker]:
            return [broker for broker in chain if "B4" in [link["neighbour"] for link in broker.view()["links"]]]

        wait_until(
            lambda: [each["neighbour"] for each in fourth.view()["links"]] == [b.name for b in linked()], fourth.view
        )
        [neighbour] = linked()
        fourth.subscribe("price > 0", "all")
        wait_for_subscriptions(neighbour, "B4", 1)
    finally:
        fourth.kill()
    wait_until(lambda: neighbour.link("B4")["state"] == "down", neighbour.view)
    neighbour.publish({"@id": "a", "price": 1}, {"@id": "b", "price": 2})
    assert neighbour.link("B4")["waiting"] == 2
    assert lavant("federation", "links", "--url", neighbour.url).exit_code == 1
    asked = lavant("federation", "rm", "B4", "--url", neighbour.url)
    assert (asked.exit_code, "with 2 publications waiting for it?" in asked.output) == (1, True), asked.output
    removed = lavant("federation", "rm", "B4", "--yes", "--url", neighbour.url)
    assert removed.exit_code == 0, removed.output
    assert removed.output.startswith("B4 is removed, with 2 publications (")
    assert [line.strip() for line in removed.output.splitlines()[1:]] == ["a", "b"]
    wait_for_members(*chain)
    with pytest.raises(UnknownNeighbour, match="'B4'"):
        raise_from(lavant("federation", "rm", "B4", "--url", neighbour.url))


def raise_from(result: Result) -> None:
    assert result.exception is not None
    raise result.exception


def publish_all(broker: Broker, count: int, prefix: str, passed: threading.Event) -> None:
    with connect(broker.url, retries=Retries(within_s=300)) as client:
        for start in range(0, count, BATCH):
            numbers = range(start, min(start + BATCH, count))
            client.publish_many(
                [Publication(attributes={"price": n}, id=PublicationId(f"{prefix}-{n}")) for n in numbers]
            )
            if start >= count // 3:
                passed.set()


def kill_one(chain: list[Broker], victim: Broker, count: int, round_: int) -> None:
    """While publications pass from both ends; then every broker has each publication once."""
    half = threading.Event()
    prefixes = [f"{round_}-{broker.name}" for broker in (chain[0], chain[-1])]
    publishers = [
        threading.Thread(target=publish_all, args=(broker, count, prefix, half))
        for broker, prefix in zip((chain[0], chain[-1]), prefixes, strict=True)
    ]
    for publisher in publishers:
        publisher.start()
    half.wait()
    victim.kill()
    time.sleep(0.2)
    victim.start()
    for publisher in publishers:
        publisher.join()
    expected = Counter(f"{prefix}-{number}" for prefix in prefixes for number in range(count))
    for broker in chain:
        found = received_in_time(broker, expected.total())
        assert found == expected, (victim.name, broker.name, expected - found, found - expected)


def received_in_time(broker: Broker, count: int) -> Counter[str]:
    found: Counter[str] = Counter()

    def is_complete() -> bool:
        found.update(broker.received("all"))
        return found.total() >= count

    wait_until(is_complete, lambda: (broker.name, found.total(), broker.view()))
    time.sleep(0.1)  # for copies that should not be
    return found + broker.received("all")


def test_each_broker_may_be_killed_while_publications_pass(chain: list[Broker]) -> None:
    subscribe_at_all(chain)
    for round_, victim in enumerate(chain):
        kill_one(chain, victim, 600, round_)
    for broker in chain:
        broker.unsubscribe("all")


@pytest.mark.soak
def test_ten_times_ten_thousand_publications_with_each_broker_killed(chain: list[Broker]) -> None:
    subscribe_at_all(chain)
    for round_ in range(10):
        for place, victim in enumerate(chain):
            kill_one(chain, victim, 10_000, 100 + 3 * round_ + place)
    for broker in chain:
        broker.unsubscribe("all")


@pytest.mark.soak
def test_a_link_that_breaks_anywhere_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """It is cut in the middle of frames, both ways, while publications pass both ways."""
    dice = random.Random(16)
    first = Broker(tmp_path, "B1")
    with BadLink("127.0.0.1", first.port, cut_bytes=lambda: dice.randrange(5_000, 40_000)) as network:
        second = Broker(tmp_path, "B2", network.url)
        try:
            pair = [first, second]
            wait_for_members(*pair)
            for broker in pair:
                broker.subscribe("price >= 0", "all")
            wait_until(lambda: all(broker.view()["links"][0]["subscriptions"] == 1 for broker in pair))
            publishers = [
                threading.Thread(target=publish_all, args=(broker, 2000, broker.name, threading.Event()))
                for broker in pair
            ]
            for publisher in publishers:
                publisher.start()
            for publisher in publishers:
                publisher.join()
            wait_until(lambda: network.connections > 3)  # what waits for the link is more than one may carry
            network.stop_cutting()
            expected = Counter(f"{broker.name}-{number}" for broker in pair for number in range(2000))
            for broker in pair:
                found = received_in_time(broker, expected.total())
                assert found == expected, (broker.name, expected - found, found - expected)
        finally:
            for broker in pair:
                broker.kill()


@pytest.mark.soak
def test_a_link_that_is_open_and_forwards_nothing_is_found_and_opened_again(tmp_path: Path) -> None:
    config = tmp_path / "lavant.toml"
    config.write_text("[limits]\nlink_probe_s = 0.2\nlink_silent_s_max = 1.0\n")
    options = ("--config", str(config))
    first = Broker(tmp_path, "B1", options=options)
    with BadLink("127.0.0.1", first.port) as network:
        second = Broker(tmp_path, "B2", network.url, options=options)
        try:
            wait_for_members(first, second)
            second.subscribe("price >= 0", "all")
            wait_for_subscriptions(first, "B2", 1)
            network.hold_back()
            first.publish({"@id": "a", "price": 1})
            wait_until(lambda: first.link("B2")["state"] != "up", first.view)
            wait_until(lambda: second.link("B1")["state"] != "up", second.view)
            wait_until(lambda: "B2" in first.log and "probe" in first.log, lambda: first.log)
            assert first.link("B2")["waiting"] == 1
            network.pass_on()
            assert received_in_time(second, 1) == Counter(["a"])
            assert first.link("B2")["state"] == second.link("B1")["state"] == "up"
        finally:
            first.kill()
            second.kill()


@pytest.mark.soak
def test_the_demonstration_ends_by_itself_with_nothing_missing() -> None:
    shown = lavant("federation", "demo", "--publications", "400", "--json")
    assert shown.exit_code == 0, shown
    found = json.loads(shown.stdout)
    assert found["published"] == 800
    rows = [(each["broker"], each["missing"], each["twice"]) for each in found["deliveries"]]
    assert rows == [(f"B{number}", 0, 0) for number in (1, 2, 3)], shown
