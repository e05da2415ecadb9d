"""`lavant serve --engine spark` with real Spark: the right queues, at once after a change, and once, whoever is killed.

A Spark session takes long to start, so the tests go on with one server; the last one kills both processes.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.error import HTTPError

import msgspec
import pytest
from tests.integration.frames import FrameClient
from tests.integration.processes import descendants
from tests.integration.serving import Served

from lavant.broker.filters import parse
from lavant.broker.queues.commands import Refused
from lavant.broker.subscriptions.commands import EncryptedFilter, Publish, Published, Subscribe, Subscribed, Unsubscribe
from lavant.client.encryption import Key, NumericAttribute, Schema

OPTIONS = ("--engine", "spark", "--master", "local[2]", "--hosts-max", "2")
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("spark"), *OPTIONS) as running:
        yield running


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def all_delivered(server: Served) -> None:
    until(lambda: server.metric("lavant_engine_owed") == 0)


def health(server: Served) -> bytes:
    try:
        return server.http("/healthz").read()
    except HTTPError as unhealthy:
        return unhealthy.read()


def accepted(client: FrameClient, rows: Sequence[Mapping[str, object]], namespace: str = "") -> None:
    answer = client.ask(Publish([msgspec.json.encode(row) for row in rows], namespace=namespace))
    assert isinstance(answer, Published), answer
    assert not [entry for entry in answer.entries if isinstance(entry, Refused)]


def numbers(client: FrameClient, queue: str) -> list[int]:
    return [msgspec.json.decode(body)["n"] for body in client.drain(queue)]


def spark_process(server: Served) -> int:
    [found] = [
        process.pid
        for process in descendants()
        if process.command.rstrip().endswith("-m lavant.pipeline.serving") and process.parent == server.process.pid
    ]
    return found


def test_publications_reach_the_queues_of_those_who_want_them(server: Served) -> None:
    chance = random.Random(1)
    bounds = [(chance.randrange(80), chance.randrange(5, 40)) for _ in range(30)]
    rows: list[dict[str, object]] = [
        {"n": n, "a": chance.randrange(100), "s": chance.choice("xyz")} for n in range(400)
    ]
    with FrameClient(server.port) as client:
        for number, (low, width) in enumerate(bounds):
            filter = f"a between {low} and {low + width} and s in ('x', 'y')"
            assert isinstance(client.ask(Subscribe(filter, f"r{number}")), Subscribed)
        client.ask(Subscribe("a < 50", "elsewhere", namespace="acme"))
        accepted(client, rows[:50])
        accepted(client, rows[50:])
        accepted(client, rows[:100], "acme")
        all_delivered(server)
        for number, (low, width) in enumerate(bounds):
            wanted = [row["n"] for row in rows if low <= int(str(row["a"])) <= low + width and row["s"] != "z"]
            assert numbers(client, f"r{number}") == wanted
        assert numbers(client, "acme/elsewhere") == [row["n"] for row in rows[:100] if int(str(row["a"])) < 50]


def test_encrypted_publications_reach_those_who_hold_the_key(server: Served) -> None:
    key = Key.generate(Schema.of(NumericAttribute("price", 0, 100, 1)))
    tests = key.encrypt_filters([parse("price > 60")]).tests[0]
    points = key.encrypt_publications([{"price": price} for price in range(0, 101, 10)]).points
    bodies = [msgspec.json.encode({"@point": point.tolist(), "@id": str(n)}) for n, point in enumerate(points)]
    with FrameClient(server.port) as client:
        filter = EncryptedFilter(tests.shape[1], tests.astype("<f8").tobytes())
        assert isinstance(client.ask(Subscribe(filter, "secret", namespace="sealed")), Subscribed)
        answer = client.ask(Publish(bodies, namespace="sealed"))
        assert answer.entries == [str(n) for n in range(11)]
        all_delivered(server)
        assert [msgspec.json.decode(body)["@id"] for body in client.drain("sealed/secret")] == ["7", "8", "9", "10"]


def test_changes_hold_for_every_publication_accepted_after_their_answer(server: Served) -> None:
    with FrameClient(server.port) as client:
        client.ask(Subscribe("other = 1", "keeper", queue="shared"))
        for turn in range(6):
            client.ask(Subscribe("k = 1", "new", queue="shared"))
            accepted(client, [{"n": 2 * turn, "k": 1}])
            client.ask(Unsubscribe("new"))
            accepted(client, [{"n": 2 * turn + 1, "k": 1}])
        all_delivered(server)
        got = numbers(client, "shared")
        # What was accepted while subscribed may be dropped by an unsubscribe that comes before its delivery.
        assert set(got) <= {0, 2, 4, 6, 8, 10}
        client.ask(Subscribe("k = 1", "stays", queue="shared"))
        accepted(client, [{"n": 99, "k": 1}])
        all_delivered(server)
        assert numbers(client, "shared") == [99]


def test_whoever_is_killed_everything_accepted_is_delivered_once(server: Served) -> None:
    with FrameClient(server.port) as client:
        client.ask(Subscribe("burst = 1", "all"))
        client.ask(Subscribe("burst = 1 and n < 100", "some"))
        first = spark_process(server)
        published = 0

        def publish(times: int) -> None:
            nonlocal published
            for _ in range(times):
                accepted(client, [{"n": published + i, "burst": 1} for i in range(10)])
                published += 10

        publish(10)
        os.kill(first, signal.SIGKILL)
        publish(10)
        until(lambda: b"delivered later: the Spark process" in health(server))
        until(
            lambda: server.metric("lavant_engine_starts_total") == 2 and server.metric("lavant_engine_owed") < published
        )
        publish(10)
        second = spark_process(server)
        server.kill()
    until(lambda: not Path(f"/proc/{second}").exists())
    assert server.data is not None
    with Served(server.data, *OPTIONS) as again, FrameClient(again.port) as client:
        publish(5)
        all_delivered(again)
        for queue, wanted in (("all", published), ("some", 100)):
            assert Counter(numbers(client, queue)) == Counter(range(wanted))
        assert health(again) == b"ok\n"
        assert again.stop() == 0
