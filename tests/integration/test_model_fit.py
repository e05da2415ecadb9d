"""From a server that is used to a plan: its telemetry is fitted, and the fitted file planned with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.integration.frames import FrameClient
from tests.integration.serving import LAVANT, Served

from lavant.broker.protocol.jobs import CompleteTask, DefineJobs, LeaseTasks, SubmitJob
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Acknowledge, CreateQueue, Receive, Send, SendEntry
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.control.allocation.system.toml_file import SystemFile
from lavant.core.errors import Infeasible

JOBS = """
topics = ["A", "B", "D"]
[jobs.upload]
start = "load"
tasks.load = { topic = "A", next = "scale" }
tasks.scale = { topic = "B", next = "store" }
tasks.store = { topic = "D", next = "index" }
tasks.index = { topic = "D" }
[jobs.delete]
start = "drop"
tasks.drop = { topic = "D" }
"""


def work(client: FrameClient, topic: str) -> None:
    """Do the tasks of a topic, one by one."""
    while tasks := client.ask(LeaseTasks(topic, "w", wait_ms=0)).tasks:
        (task,) = tasks
        client.ask(CompleteTask(task.job, task.task, task.attempt))


def use_jobs(client: FrameClient) -> None:
    client.ask(DefineJobs(read_workflows(JOBS)))
    for _ in range(6):
        client.ask(SubmitJob("upload"))
        client.ask(SubmitJob("delete"))
        for topic in ("A", "B", "D"):
            work(client, topic)


def use_queues(client: FrameClient) -> None:
    client.ask(CreateQueue("orders", QueueConfig()))
    client.ask(CreateQueue("letters", QueueConfig()))
    for _ in range(12):
        client.ask(Send("orders", [SendEntry(b"x")]))
        client.ask(Send("letters", [SendEntry(b"nobody reads this")]))
        (delivery,) = client.ask(Receive("orders")).deliveries
        client.ask(Acknowledge("orders", [delivery.receipt]))


def use_subscriptions(client: FrameClient) -> None:
    client.ask(Subscribe("a > 2", "large"))
    for number in range(8):
        client.ask(Publish([b'{"a": %d}' % number]))
    assert len(client.drain("large")) == 5


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a server can be used for, in one directory of telemetry."""
    written = tmp_path_factory.mktemp("fit") / "telemetry"
    with Served(None, "--telemetry", str(written)) as server, FrameClient(server.port) as client:
        use_jobs(client)
        use_queues(client)
        use_subscriptions(client)
        assert server.stop() == 0
    return written


def run(*arguments: str) -> str:
    return subprocess.run([LAVANT, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout


def test_a_plan_from_telemetry_says_what_was_measured_and_why_it_may_be_too_long(telemetry: Path) -> None:
    shown = run("queue", "plan", "--from", str(telemetry), "--queue", "orders", "--loss", "0")
    assert " from receive to acknowledgement, scv " in shown
    again = subprocess.run(
        [LAVANT, "queue", "plan", "--from", str(telemetry), "--queue", "orders", "--delivery-s", "1e-9"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == Infeasible.exit_code
    assert "if consumers lease messages ahead" in again.stderr


def test_the_telemetry_of_a_server_is_fitted_and_planned_with(telemetry: Path, tmp_path: Path) -> None:
    text = run("model", "fit", str(telemetry))
    network = SystemFile(text, name="fitted").system.network
    routes = {job.name: [task.topic for task in job.tasks] for job in network.jobs}
    assert routes == {"upload": ["A", "B", "D", "D"], "delete": ["D"], "orders": ["orders"], "large": ["large"]}
    assert set(network.topic_names) == {"A", "B", "D", "orders", "large"}
    assert "nothing was consumed from them: letters." in text
    path = tmp_path / "system.toml"
    path.write_text(f"{text}\n[goal]\nresponse_s = 1000\n")
    assert "allocation   " in run("plan", str(path))
