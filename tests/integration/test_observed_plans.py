"""Plans from a server that runs: real jobs, done by real workers, and messages of a queue."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect

TASKS = Path(__file__).with_name("tasks_for_workers.py")
FILE = f"""
[workflow]
topics = ["quick"]
[workflow.jobs.chain]
start = "first"
tasks.first = {{ topic = "quick", next = "second" }}
tasks.second = {{ topic = "quick" }}

[goal]
budget = 0
[[topic]]
name = "quick"
worker = "{TASKS}"
consumers_min = 2
"""
MESSAGES = 120
SERVICE_S = 0.01


def use(served: Served) -> None:
    """Jobs for the workers, and one consumer that takes about 10 ms for a message."""
    with connect(served.url) as sender, connect(served.url) as receiver:
        queue = sender.create_queue("orders")

        def consume() -> None:
            done, orders = 0, receiver.queue("orders")
            while done < MESSAGES:
                for message in orders.receive(wait_s=1):
                    time.sleep(SERVICE_S)
                    orders.acknowledge(message)
                    done += 1

        consumer = threading.Thread(target=consume)
        consumer.start()
        numbers = []
        for number in range(MESSAGES):
            queue.send(b"x")
            if number % 10 == 0:
                numbers.append(sender.submit("chain", str(number)))
            time.sleep(0.02)
        consumer.join(WAIT_S_MAX)
        assert not consumer.is_alive()
        assert {sender.wait(number, timeout_s=WAIT_S_MAX).state for number in numbers} == {"completed"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("observed")
    (directory / "resources.toml").write_text(FILE)
    options = ("--resources", str(directory / "resources.toml"), "--telemetry", str(directory / "telemetry"))
    with Served(directory / "data", *options) as server:
        assert "nothing has been written yet" in run("plan", "--from", server.url, code=5)
        use(server)
        until_s = time.monotonic() + WAIT_S_MAX
        while "orders" not in observed_topics(server):
            assert time.monotonic() < until_s
            time.sleep(0.5)
        yield server


def observed_topics(server: Served) -> set[str]:
    try:
        return {window["topic"] for window in json.load(server.http("/telemetry"))["estimates"] if window["services"]}
    except urllib.error.HTTPError as error:
        with error:
            return set()


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([LAVANT, *arguments], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_a_running_server_is_planned_for(served: Served) -> None:
    found = json.loads(run("plan", "--from", served.url, "--what-if", "response_s=10", "--json"))
    assert set(found["allocation"]) == {"quick", "orders"}
    assert {job["job"] for job in found["jobs"]} == {"chain", "orders"}
    assert all(job["response_s"] > 0 for job in found["jobs"])
    assert "the file has no [goal]" in run("plan", "--from", served.url, code=2)


def test_a_queue_of_a_running_server_is_planned_for(served: Served) -> None:
    shown = run("queue", "plan", "--from", served.url, "--queue", "orders", "--delivery-s", "0.5", "--json")
    scenario = json.loads(shown)["scenario"]
    assert scenario["consumers"]["service"]["mean_s"] >= SERVICE_S
    assert 1 <= scenario["arrival_rate_per_s"] <= 1 / 0.02
    assert "has no queue 'none'; there are orders" in run(
        "queue", "plan", "--from", served.url, "--queue", "none", code=2
    )


def test_a_server_without_telemetry_says_how_to_get_it() -> None:
    with Served(None) as server:
        assert "start it with --telemetry DIR" in run("plan", "--from", server.url, code=5)
    assert "no server answers" in run("plan", "--from", "lavant://127.0.0.1:9", code=7)
