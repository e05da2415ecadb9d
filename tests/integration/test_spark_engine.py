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
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError

import msgspec
import pytest
from tests.integration.frames import FrameClient
from tests.integration.processes import descendants, python_workers
from tests.integration.serving import Served

from lavant.broker.filters import parse
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import EncryptedFilter, Publish, Published, Subscribe, Subscribed, Unsubscribe
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.pipeline.cluster.standalone import standalone_cluster
from lavant.service.observability.metrics import FRESH_S_MAX

OPTIONS = ("--engine", "spark", "--master", "local[2]", "--hosts-max", "2")
PATIENCE_S, LONG_S = 240.0, 900.0
FILTERS = 20_000
"""So many that a host is busy."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("spark"), *OPTIONS) as running:
        yield running


def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def all_delivered(server: Served) -> None:
    time.sleep(FRESH_S_MAX)  # the figures may be so old, from before what was published last
    until(lambda: server.metric("lavant_engine_owed") == 0)


def health(server: Served) -> bytes:
    try:
        with server.http("/readyz") as response:
            return response.read()
    except HTTPError as unhealthy:
        with unhealthy:
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
        if process.command.rstrip().endswith("-m lavant.pipeline.engine") and process.parent == server.process.pid
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
    """Whoever subscribes may also get what waits at that time; whoever is gone gets nothing that comes later."""
    with FrameClient(server.port) as client:
        for turn in range(6):
            client.ask(Subscribe("other = 1", f"keeper{turn}", queue=f"shared{turn}"))
        for turn in range(6):
            client.ask(Subscribe("k = 1", f"new{turn}", queue=f"shared{turn}"))
            accepted(client, [{"n": 2 * turn, "k": 1}])
            if turn % 2:
                all_delivered(server)
            client.ask(Unsubscribe(f"new{turn}"))
            accepted(client, [{"n": 2 * turn + 1, "k": 1}])
        all_delivered(server)
        for turn in range(6):
            got = numbers(client, f"shared{turn}")
            assert not [n for n in got if n > 2 * turn], "it came after the end"
            assert 2 * turn in got or not turn % 2, "only what waits when somebody goes may be dropped"
        client.ask(Subscribe("k = 1", "stays", queue="shared0"))
        accepted(client, [{"n": 99, "k": 1}])
        all_delivered(server)
        assert numbers(client, "shared0") == [99]


def test_a_failure_of_spark_is_named_and_mended(server: Served) -> None:
    """A Python worker is killed, a log cannot be read, Java is killed: each says so, and everything is delivered."""
    assert server.data is not None
    published = 0
    with FrameClient(server.port) as client:
        client.ask(Subscribe("n >= 0", "all", namespace="faults"))

        def publish() -> None:
            nonlocal published
            accepted(client, [{"n": published}], "faults")
            published += 1

        publish()
        all_delivered(server)
        for worker in python_workers(spark_process(server)):
            os.kill(worker, signal.SIGKILL)
        publish()
        all_delivered(server)
        starts = server.metric("lavant_engine_starts_total")
        [log] = (server.data / "spark" / "plain-faults" / "log").glob("*.log")
        aside = log.rename(log.with_suffix(".aside"))
        publish()
        until(lambda: b"the log" in (shown := health(server)) and b"ends at offset" in shown)
        until(lambda: server.metric("lavant_engine_starts_total") > starts)
        aside.rename(log)
        all_delivered(server)
        until(lambda: health(server) == b"ok\n")
        [java] = [process.pid for process in descendants(spark_process(server)) if "SparkSubmit" in process.command]
        os.kill(java, signal.SIGKILL)
        until(lambda: b"Spark's Java process ended (killed by signal 9)" in health(server))
        publish()
        all_delivered(server)
        until(lambda: health(server) == b"ok\n")
        assert Counter(numbers(client, "faults/all")) == Counter(range(published))


def test_a_java_that_does_not_start_is_named_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 1x pyspark-shell")
    with Served(tmp_path / "data", *OPTIONS) as server:
        until(lambda: b"Invalid maximum heap size: -Xmx1x" in (said := health(server)) and b"(exit code 1)" in said)
        until(lambda: server.metric("lavant_engine_starts_total") >= 2)
        assert server.stop() == 0
        assert "Spark's Java process did not start: Invalid maximum heap size: -Xmx1x; details: " in server.complaints
        assert "Traceback" not in server.complaints


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
        starts = server.metric("lavant_engine_starts_total")
        os.kill(first, signal.SIGKILL)
        publish(10)
        until(lambda: b"delivered later: the Spark process" in health(server))
        until(
            lambda: (
                server.metric("lavant_engine_starts_total") > starts and server.metric("lavant_engine_owed") < published
            )
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


@pytest.mark.soak  # the load must last for minutes until another host is worth its start
def test_hosts_come_and_go_with_the_load_and_nothing_is_lost(tmp_path: Path) -> None:
    chance = random.Random(2)
    words = [f"{chance.randrange(1 << 20):05x}" for _ in range(FILTERS)]
    wanted: dict[str, list[int]] = {"all": [], **{f"w{number}": [] for number in range(10)}}
    with standalone_cluster(tmp_path / "cluster", workers=3, cores=1) as cluster, ExitStack() as open_ones:
        options = ("--engine", "spark", "--master", cluster.url, "--hosts-max", "2")
        server = open_ones.enter_context(Served(tmp_path / "data", *options))
        client = open_ones.enter_context(FrameClient(server.port))
        filters = [f"s like '%{word[:3]}%' and s like '%{word[3:]}%'" for word in words]
        for start in range(0, FILTERS, 1000):
            requests = [Subscribe(filter, "", queue="rest") for filter in filters[start : start + 1000]]
            assert all(isinstance(answer, Subscribed) for answer in client.ask_all(requests))
        client.ask(Subscribe("n >= 0", "all"))
        for number in range(10):
            client.ask(Subscribe(filters[number], f"w{number}"))
        got: dict[str, list[int]] = {queue: [] for queue in wanted}

        def publish(count: int) -> None:
            rows = [
                {"n": len(wanted["all"]) + number, "s": "".join(chance.choices(words, k=20))} for number in range(count)
            ]
            accepted(client, rows)
            for row in rows:
                wanted["all"].append(int(str(row["n"])))
                for number in range(10):
                    if words[number][:3] in str(row["s"]) and words[number][3:] in str(row["s"]):
                        wanted[f"w{number}"].append(int(str(row["n"])))

        def drain() -> None:
            client.drain("rest")
            for queue in got:
                got[queue] += numbers(client, queue)

        def hosts_are(count: int, *, under_load: bool) -> bool:
            if under_load and server.metric("lavant_engine_owed") < 500:
                drain()
                publish(250)
            return server.metric("lavant_engine_hosts") == count

        until(lambda: hosts_are(1, under_load=False))
        until(lambda: hosts_are(2, under_load=True), LONG_S)
        publish(250)  # for both
        until(lambda: hosts_are(1, under_load=False), LONG_S)
        publish(250)  # for the one that is left
        all_delivered(server)
        drain()
        assert got == wanted
        assert server.metric("lavant_engine_starts_total") == 1
