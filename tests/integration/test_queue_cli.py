"""`lavant queue …` against a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served
from typer.testing import CliRunner

from lavant import Client, connect
from lavant.cli import commands
from lavant.core.errors import InvalidValue, LavantError, MissingComponent, MoveRunning, UnknownMove, UnknownQueue


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with connect(served.url) as connection:
        yield connection


@pytest.fixture
def run(served: Served, client: Client) -> Iterator[Runner]:
    """Runs a command; all queues are gone afterwards."""
    yield Runner(served.url)
    for name in list(client.queues()):
        client.queue(name).delete()


class Runner:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        result = self.result(*arguments, stdin=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return str(result.stdout)

    def json(self, *arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin, code=code))

    def result(self, *arguments: str, stdin: str | None = None) -> Any:
        environment = {"LAVANT_URL": self._url, "COLUMNS": "120"}
        return CliRunner().invoke(commands, ["queue", *arguments], input=stdin, env=environment)


def test_queues_are_created_and_listed(run: Runner) -> None:
    assert run("create", "dead") == "dead is there\n"
    run(
        "create", "orders", "--dead-letters", "dead", "--receives-max", "3", "--visibility-ms", "5000", "--tag", "a=b=c"
    )
    run("create", "dead")
    run("send", "orders", "one", "two")
    assert [line.split() for line in run("ls").splitlines()] == [
        ["queue", "order", "visible", "in", "flight", "delayed", "bytes"],
        ["dead", "out-of-order", "0", "0", "0", "0"],
        ["orders", "out-of-order", "2", "0", "0", "6"],
    ]
    [orders] = run.json("ls", "or")
    assert (orders["queue"], orders["figures"]["visible"], orders["tags"]) == ("orders", 2, {"a": "b=c"})
    assert orders["settings"]["visibility_ms"] == 5000


def test_a_queue_tells_about_itself(run: Runner) -> None:
    run("create", "orders", "--in-order", "--deduplicate-by-content", "--tag", "team=tea")
    lines = [line.split(maxsplit=1) for line in run("info", "orders").splitlines()]
    assert ["order", "in-order"] in [[line[0], line[1].strip()] for line in lines]
    assert ["tag", "team                  tea"] in [[line[0], line[1].strip()] for line in lines]
    assert run.json("info", "orders")["settings"]["deduplicate_by_content"] is True


def test_messages_come_from_arguments_or_from_lines(run: Runner) -> None:
    run("create", "q")
    first, second = map(int, run("send", "q", "one", "two words").splitlines())
    assert second == first + 1
    assert run.json("send", "q", stdin="three\n\nfour\n") == [first + 2, first + 3, first + 4]
    bodies = [message["body"] for message in run.json("peek", "q")]
    assert bodies == ["one", "two words", "three", "", "four"]
    assert [message["body"] for message in run.json("peek", "q", "--after", str(second), "--count", "1")] == ["three"]


def test_many_lines_are_sent_in_batches(run: Runner) -> None:
    run("create", "q")
    assert len(run("send", "q", stdin="".join(f"{i}\n" for i in range(250))).splitlines()) == 250


def test_groups_and_delays_are_passed_on(run: Runner) -> None:
    run("create", "f", "--in-order")
    run("send", "f", "x", "--group", "g", "--deduplication", "d")
    run("send", "f", "x", "--group", "g", "--deduplication", "d")
    assert [message["group"] for message in run.json("peek", "f")] == ["g"]
    run("create", "q")
    run("send", "q", "later", "--delay-ms", "900000")
    assert "delayed" in run("peek", "q")


def test_messages_are_received_and_taken_out(run: Runner) -> None:
    run("create", "q")
    run("send", "q", "one", "two")
    [message] = run.json("receive", "q", "--visibility-ms", "0")
    assert (message["body"], message["receive_count"]) == ("one", 1)
    assert "two" in run("receive", "q", "--count", "5", "--acknowledge")
    assert run.json("receive", "q", code=1) == []
    assert run("receive", "q", "--wait-ms", "10", code=1) == ""


def test_what_is_no_text_is_shown_safely(run: Runner, client: Client) -> None:
    queue = client.create_queue("q")
    queue.send_many([b"\xff\x00", "größer\x1b[2J\n".encode()])
    shown = run("peek", "q")
    assert "\x1b" not in shown
    assert "größer\\x1b[2J\\n" in shown
    assert "/wA=" in shown
    messages = run.json("peek", "q")
    assert messages[0]["body_base64"] == "/wA="
    assert messages[1]["body"] == "größer\x1b[2J\n"


def test_dead_letters_are_sent_back(run: Runner) -> None:
    run("create", "dead")
    run("create", "q", "--dead-letters", "dead", "--receives-max", "1", "--visibility-ms", "0")
    run("send", "q", "one", "two")
    run("receive", "q", "--count", "2")
    run("receive", "q", "--count", "2", code=1)
    assert [message["origin"] for message in run.json("peek", "dead")] == ["q", "q"]
    assert run("redrive", "dead") == "completed, 2 of 2 messages moved\n"
    assert run.json("info", "dead")["moves"][0]["moved"] == 2
    assert len(run.json("peek", "q")) == 2


def test_a_move_that_fails_says_why_and_one_in_the_background_does_not_wait(run: Runner) -> None:
    run("create", "q")
    run("send", "q", "one", "two")
    assert "no dead letter" in run("redrive", "q", code=1)
    run("create", "r")
    state = run.json("redrive", "q", "--to", "r", "--rate", "1", "--background")
    assert (state["status"], state["destination"]) == ("running", "r")
    with pytest.raises(MoveRunning, match="`lavant queue redrive QUEUE --cancel`"):
        run("redrive", "q", "--to", "r")
    assert run.json("redrive", "q", "--cancel")["status"] == "cancelled"
    with pytest.raises(UnknownMove, match="nothing is being moved from queue 'q'"):
        run("redrive", "q", "--cancel")


def test_the_name_of_a_command_before_works_and_says_the_new_one(run: Runner) -> None:
    run("create", "q")
    done = run.result("set", "q", "--visibility-ms", "4000")
    assert (done.exit_code, done.stderr) == (0, "lavant: `lavant queue set` is now `lavant queue configure`\n")
    assert run.json("info", "q")["settings"]["visibility_ms"] == 4000
    with pytest.raises(InvalidValue, match="give an attribute and its value"):
        run("configure", "q")


def test_purging_and_deleting_ask_first(run: Runner) -> None:
    run("create", "q")
    run("send", "q", "one")
    run("purge", "q", stdin="n\n", code=1)
    assert len(run.json("peek", "q")) == 1
    assert "q is empty" in run("purge", "q", stdin="y\n")
    assert run.json("peek", "q") == []
    assert "q is gone" in run("delete", "q", "--yes")
    assert run.json("ls") == []


def test_errors_are_those_of_the_server(run: Runner) -> None:
    with pytest.raises(UnknownQueue, match="there is no queue 'none'"):
        run("info", "none")
    with pytest.raises(LavantError, match="dead_letters and receives_max go together"):
        run("create", "q", "--receives-max", "3")
    with pytest.raises(InvalidValue, match="KEY=VALUE"):
        run("create", "q", "--tag", "team")


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    command = [str(LAVANT), "queue", "ls", "--url", "lavant://127.0.0.1:1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert result.returncode == MissingComponent.exit_code
    assert result.stderr.startswith("lavant: no server answers at lavant://127.0.0.1:1: ")
    assert "Traceback" not in result.stderr
    with pytest.raises(MissingComponent):
        Runner("lavant://127.0.0.1:1")("ls")


def test_the_server_must_be_told_where_to_keep_messages(tmp_path: Path) -> None:
    for options in ([], ["--memory", "--data", str(tmp_path)]):
        result = CliRunner().invoke(commands, ["serve", *options])
        assert isinstance(result.exception, InvalidValue)
        assert "--data" in str(result.exception)
