"""Workers as processes of a resource manager: killed, hanging, failing; nothing is lost, nothing is done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import Process, descendants
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import Client, connect
from lavant.core.errors import UnknownJob, UnknownJobType, UnknownTopic

TASKS = Path(__file__).with_name("tasks_for_workers.py")
FILE = f"""
[workflow]
topics = ["quick", "strange"]
[workflow.jobs.chain]
start = "first"
tasks.first = {{ topic = "quick", next = "second", attempts = 20, backoff_ms = 10 }}
tasks.second = {{ topic = "quick", attempts = 20, backoff_ms = 10 }}
[workflow.jobs.odd]
start = "it"
tasks.it = {{ topic = "strange", attempts = 2, timeout_ms = 2000, backoff_ms = 10 }}

[goal]
budget = 0
[workers]
lease_s = 1
silence_s = 3
drain_s = 2
[[topic]]
name = "quick"
worker = "{TASKS}"
consumers_min = 3
[[topic]]
name = "strange"
worker = "{TASKS}"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("workers")
    (directory / "resources.toml").write_text(FILE)
    with Served(directory / "data", "--resources", str(directory / "resources.toml")) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with connect(served.url) as connection:
        yield connection


def workers(served: Served, topic: str) -> list[Process]:
    """Those that a crew has forked: children of a process with the same command line."""
    found = [each for each in descendants(served.process.pid) if f'"topic":"{topic}"' in each.command]
    crews = {each.pid for each in found if each.parent == served.process.pid}
    return [each for each in found if each.parent in crews]


def wait_for_workers(served: Served, topic: str, count: int, *, without: int = 0) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while len(pids := [each.pid for each in workers(served, topic)]) < count or without in pids:
        assert time.monotonic() < deadline_s, pids
        time.sleep(0.02)


@pytest.mark.parametrize("seconds", [4.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_jobs_survive_workers_that_are_killed_at_random(served: Served, client: Client, seconds: float) -> None:
    chance = random.Random(7)
    wait_for_workers(served, "quick", 3)
    numbers: list[int] = []
    kills, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        numbers += [client.submit("chain", f"{len(numbers) + place}") for place in range(10)]
        victims = workers(served, "quick")
        if victims:
            os.kill(chance.choice(victims).pid, signal.SIGKILL)
            kills += 1
        time.sleep(0.4)
    jobs = [client.wait(number, timeout_s=WAIT_S_MAX) for number in numbers]
    assert {job.state for job in jobs} == {"completed"}
    assert [job.results["second"].body.decode() for job in jobs] == [str(place) for place in range(len(jobs))]
    done = [attempt.outcome for job in jobs for task in job.tasks for attempt in task.attempts]
    assert done.count("completed") == 2 * len(jobs)
    assert kills >= 2
    wait_for_workers(served, "quick", 3)
    view = json.load(served.http("/resources"))
    assert view["topics"][0]["died"] >= kills


def test_a_worker_that_is_frozen_is_replaced_and_its_task_done_by_another(served: Served, client: Client) -> None:
    wait_for_workers(served, "strange", 1)
    [worker] = workers(served, "strange")
    os.kill(worker.pid, signal.SIGSTOP)
    job = client.wait(client.submit("odd", "simple"), timeout_s=WAIT_S_MAX)
    assert job.state == "completed"
    wait_for_workers(served, "strange", 1, without=worker.pid)


def test_a_function_that_hangs_costs_its_worker_and_the_task_goes_to_another(served: Served, client: Client) -> None:
    wait_for_workers(served, "strange", 1)
    [worker] = workers(served, "strange")
    job = client.wait(client.submit("odd", "hang"), timeout_s=WAIT_S_MAX)
    assert job.results["it"].body == b"attempt 2"
    wait_for_workers(served, "strange", 1, without=worker.pid)


@pytest.mark.parametrize(
    ("order", "attempts", "reason"),
    [
        ("raise", 2, "task 'it' failed in attempt 2: ValueError: it cannot be done"),
        ("give up", 1, "task 'it' failed in attempt 1: PermanentFailure: it will never be done"),
    ],
)
def test_a_task_that_always_fails_is_a_failed_job_with_a_reason_and_a_dead_letter(
    client: Client, order: str, attempts: int, reason: str
) -> None:
    number = client.submit("odd", order)
    job = client.wait(number, timeout_s=WAIT_S_MAX)
    assert (job.state, job.reason, len(job.tasks[0].attempts)) == ("failed", reason, attempts)
    letters = [json.loads(letter.body) for letter in client.queue("dead.strange").peek(100)]
    assert [letter["reason"] for letter in letters if letter["job"] == number] == [job.tasks[0].attempts[-1].reason]


def test_jobs_over_http(served: Served, client: Client) -> None:
    def ask(method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> dict[str, object]:
        address = f"http://{served.host}:{served.port}{path}"
        request = urllib.request.Request(address, body, {"content-type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            found: dict[str, object] = json.load(response)
            return found

    submission = b'{"type": "chain", "input": {"n": 1}, "name": "over-http"}'
    number = ask("POST", "/jobs", submission)["job"]
    assert ask("POST", "/jobs", submission) == {"job": number, "is_new": False}
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask("POST", "/jobs", b'{"type": "chain", "name": "over-http"}')
    refused.value.close()
    assert refused.value.code == 422, "the name belongs to a job with another input"
    assert isinstance(number, int)
    client.wait(number, timeout_s=WAIT_S_MAX)
    job = ask("GET", f"/jobs/{number}")
    assert (job["state"], job["results"]) == ("completed", {"second": {"text": '{"n":1}'}})
    assert number in [each.number for each in client.jobs(state="completed")]
    assert ask("GET", f"/jobs?after={number - 1}&limit=1")["jobs"] != []
    assert ask("DELETE", f"/jobs/{number}") == {"state": "completed", "is_new": False}
    text = b'topics = ["slow"]\njobs.slow = { start = "a", tasks.a = { topic = "slow" } }\n'
    assert ask("PUT", "/workflows", text, "application/toml") == {"types": ["slow"], "topics": ["slow"]}
    waiting = client.submit("slow")
    assert ask("DELETE", f"/jobs/{waiting}") == {"state": "cancelled", "is_new": True}
    assert client.cancel(waiting) is False


def test_what_is_not_there_is_named(client: Client) -> None:
    with pytest.raises(UnknownJobType, match="'nothing'"):
        client.submit("nothing")
    with pytest.raises(UnknownJob):
        client.job(10**9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such_module",), "worker module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        ((str(TASKS), "--topic", "nothing"), "no function for topic 'nothing'; it has quick, strange"),
        ((f"{TASKS}:quick", "--topic", "quick", "--url", "lavant://127.0.0.1:1"), "no server answers"),
    ],
)
def test_a_worker_that_cannot_begin_says_so_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    ended = subprocess.run(
        [str(LAVANT), "worker", *arguments], check=False, capture_output=True, text=True, timeout=WAIT_S_MAX
    )
    assert ended.returncode == (7 if said == "no server answers" else 2)
    assert ended.stderr.startswith("lavant: ")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_worker_of_a_topic_that_nobody_defined_says_so(served: Served, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text('import lavant\n@lavant.task("nowhere")\ndef work(task): ...\n')
    command = [str(LAVANT), "worker", "elsewhere", "--url", served.url]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S_MAX, cwd=tmp_path)
    assert ended.returncode == UnknownTopic.exit_code
    assert "there is no topic 'nowhere'" in ended.stderr


def test_a_server_whose_workers_cannot_be_loaded_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "resources.toml").write_text(FILE.replace(str(TASKS), "no_such_module"))
    command = [str(LAVANT), "serve", "--memory", "--port", "0", "--resources", str(tmp_path / "resources.toml")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S_MAX)
    assert ended.returncode == 2
    assert "': worker module 'no_such_module' cannot be imported" in ended.stderr


def test_no_worker_outlives_its_server(served: Served) -> None:
    """The last one here: the server is killed, and all that it started go by themselves."""
    started = [each.pid for each in descendants(served.process.pid)]
    assert len(started) >= 6
    served.kill()
    deadline_s = time.monotonic() + WAIT_S_MAX
    while alive := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline_s, alive
        time.sleep(0.1)
