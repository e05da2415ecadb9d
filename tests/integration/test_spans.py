"""Spans of OpenTelemetry: an application, a server and a worker, three processes that report to one collector."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.federations import Broker, wait_for_members, wait_for_subscriptions
from tests.integration.otlp_collector import CollectedSpan, Collector
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served
from tests.integration.webhook_receiver import Got, Receiver

from lavant import connect

TASKS = Path(__file__).with_name("tasks_for_workers.py")
JOBS = """
topics = ["quick", "strange"]
[jobs.both]
start = "first"
tasks.first = { topic = "quick", next = "second" }
tasks.second = { topic = "strange" }
"""


class Told(NamedTuple):
    collector: Collector
    traces: dict[str, str]
    """Ids by the name of what the application did."""
    hook: Got


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    data = tmp_path_factory.mktemp("traced")
    with Collector() as collector, Receiver() as receiver:
        with pytest.MonkeyPatch.context() as patch:  # not longer: other servers inherit it
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            traces = _run_all(data, receiver)
        [hook] = receiver.wait_for(1)
        yield Told(collector, traces, hook)


def _run_all(data: Path, receiver: Receiver) -> dict[str, str]:
    """Runs the server, the worker and the application; returns what the application printed."""
    with Served(data / "data") as served:
        with connect(served.url) as client:
            client.subscribe("traced = 1", name="hooked", webhook=receiver.url)
            client.define_jobs(JOBS)
        program = [sys.executable, "-m", "tests.integration.traced_program", served.url, str(data / "publisher")]
        with subprocess.Popen([str(LAVANT), "worker", str(TASKS), "--url", served.url]) as worker:
            try:
                done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
            finally:
                worker.terminate()
        assert (done.returncode, worker.returncode) == (0, 0), done.stderr
        receiver.wait_for(1)
        assert served.stop() == 0
        assert served.complaints == ""
    traces: dict[str, str] = json.loads(done.stdout)
    return traces


def tree(told: Told, name: str, count: int) -> dict[str, list[str]]:
    """The spans of a trace: where each was made, its kind and its name, by those of their parents."""
    spans = told.collector.wait_for_trace(told.traces[name], count)
    by_id = {each.id: each for each in spans}
    assert len(by_id) == count
    found: dict[str, list[str]] = {}
    for each in spans:
        found.setdefault(_label(by_id[each.parent]) if each.parent else "", []).append(_label(each))
    return {parent: sorted(children) for parent, children in found.items()}


def _label(span: CollectedSpan) -> str:
    place = {"application": "application", "lavant": "server", "lavant-worker": "worker"}[span.service]
    return f"{place} {span.kind.lower()}: {span.name}".replace("internal: ", "")


def _named(told: Told, trace: str, name: str) -> list[CollectedSpan]:
    return [each for each in told.collector.wait_for_trace(told.traces[trace], 1) if each.name.startswith(name)]


def test_a_publication_is_one_trace_to_its_handler_and_its_webhook(told: Told) -> None:
    [queue] = [each.attributes["messaging.destination.name"] for each in _named(told, "publish", "process")]
    assert tree(told, "publish", 5) == {
        "": ["application publish"],
        "application publish": ["application producer: publish"],
        "application producer: publish": [
            f"application consumer: process {queue}",
            "server client: POST",
            "server server: publish",
        ],
    }
    [post] = _named(told, "publish", "POST")
    assert told.hook.headers["traceparent"].split("-")[1:3] == [post.trace, post.id]
    assert post.attributes["lavant.subscription"] == "hooked"
    [process], [publish, *_] = _named(told, "publish", "process"), _named(told, "publish", "publish")
    assert process.links == (process.parent,)
    assert publish.attributes.get("messaging.system", "lavant") == "lavant"


def test_a_stored_publication_keeps_the_trace_of_its_application(told: Told) -> None:
    assert tree(told, "store", 2) == {"": ["application store"], "application store": ["server server: publish"]}


def test_messages_of_a_queue_are_handled_in_the_trace_that_sent_them(told: Told) -> None:
    assert tree(told, "send", 8) == {
        "": ["application send"],
        "application send": ["application producer: send sent"] * 2,
        "application producer: send sent": ["application consumer: process sent"] * 3
        + ["server server: send sent"] * 2,
    }
    counts = [each.attributes.get("messaging.batch.message_count") for each in _named(told, "send", "send sent")]
    assert sorted(map(str, counts)) == ["2", "None", "None", "None"]


def test_a_handler_that_raises_fails_its_span(told: Told) -> None:
    assert len(tree(told, "fail", 5)) == 3
    assert sorted(each.is_failed for each in _named(told, "fail", "process")) == [False, True]


def test_a_reply_belongs_to_the_trace_of_its_request(told: Told) -> None:
    [replies] = {each.name for each in _named(told, "request", "process")} - {"process asked"}
    assert tree(told, "request", 7) == {
        "": ["application request"],
        "application request": ["application producer: request asked"],
        "application producer: request asked": ["application consumer: process asked", "server server: send asked"],
        "application consumer: process asked": ["application producer: publish"],
        "application producer: publish": [f"application consumer: {replies}", "server server: publish"],
    }


def test_a_job_is_one_trace_through_each_worker_to_its_end(told: Told) -> None:
    assert tree(told, "submit", 6) == {
        "": ["application submit"],
        "application submit": ["application producer: submit both"],
        "application producer: submit both": [
            "server job both",
            "server server: submit both",
            "worker consumer: process quick",
            "worker consumer: process strange",
        ],
    }
    [job] = _named(told, "submit", "job")
    assert job.attributes["lavant.job.state"] == "completed"
    assert job.seconds >= 0.02  # its first task sleeps


def test_an_asynchronous_client_makes_the_same_spans(told: Told) -> None:
    assert tree(told, "asynchronous", 6) == {
        "": ["application asynchronous"],
        "application asynchronous": ["application producer: send tasks-of-a-loop"],
        "application producer: send tasks-of-a-loop": [
            "application consumer: process tasks-of-a-loop",
            "server server: send tasks-of-a-loop",
        ],
        "application consumer: process tasks-of-a-loop": ["application producer: publish"],
        "application producer: publish": ["server server: publish"],
    }


def test_a_publication_continues_its_trace_at_the_next_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, publisher = f"{7:032x}", f"{8:016x}"
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        one = Broker(tmp_path, "B1")
        two = Broker(tmp_path, "B2", one)
        wait_for_members(one, two)
        two.subscribe("traced = 1", "s")
        wait_for_subscriptions(one, "B2", 1)
        one.publish({"traced": 1, "@traceparent": f"00-{trace}-{publisher}-01"}, {"traced": 1})
        spans = collector.wait_for_trace(trace, 2)
        assert sorted((each.name, each.attributes.get("lavant.neighbour", ""), each.parent) for each in spans) == [
            ("publish", "", publisher),
            ("relay", "B1", publisher),
        ]
        assert [each.kind for each in spans] == ["SERVER"] * 2
        assert [broker.stop() for broker in (one, two)] == [0, 0]


def test_nothing_is_imported_without_it(brisk: Served) -> None:
    program = (
        "import sys, lavant\n"
        "with lavant.connect(sys.argv[1]) as client:\n"
        "    queue = client.create_queue('plain')\n"
        "    queue.send('tea')\n"
        "    client.publish({'n': 1})\n"
        "    with queue.consume() as consumer:\n"
        "        consumer.run(lambda message: None, count=1, timeout_s=20)\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    command = [sys.executable, "-c", program, brisk.url]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
