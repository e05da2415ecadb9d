"""`--json` of every command that shows what a server holds, beside a server that holds one of everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import Served
from typer.testing import CliRunner

from lavant import Key, NumericAttribute, QueueConfig, Schema, Webhook, Workflow, connect
from lavant.cli import commands

NOT_TEXT = b"\xff\x00"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("json")
    with Served(directory / "data") as server:
        key = Key.generate(Schema.of(NumericAttribute("price", 0, 100, 1)))
        with connect(server.url) as client, connect(server.url, encryption=key) as secret:
            dead = client.create_queue("dead", tags={"a": "b"})
            queue = client.create_queue("q", QueueConfig(dead_letters="dead", receives_max=1, labels={"team": "x"}))
            queue.send_many([NOT_TEXT, "text"])
            for delivery in queue.receive(2):
                queue.change_visibility(delivery, visibility_s=0, reason="no luck")
            assert queue.receive(2) == []
            dead.redrive("q")
            client.subscribe("a = 1", name="plain").close()
            client.subscribe("a = 1", name="hooked", webhook=Webhook("http://127.0.0.1:9", secret="s")).close()
            secret.subscribe("price > 5", name="secret").close()
            client.advertise("a > 0", name="ad")
            workflow = Workflow("greet")
            workflow.task("hello", topic="t")
            client.define_jobs(workflow)
            client.submit("greet", NOT_TEXT, name="mine")
            client.submit("greet", NOT_TEXT)
            client.cancel(2)
            client.schedule("tick", every_s=3600, queue="q", body=NOT_TEXT)
        yield server.url


@pytest.mark.parametrize(
    "words",
    [
        "queue ls",
        "queue info q",
        "queue info dead",
        "queue peek q",
        "queue peek dead",
        "queue receive q --count 9",
        "queue send q x",
        "queue create another",
        "queue configure q --visibility-ms 1000",
        "queue purge dead --yes",
        "subscriptions ls",
        "subscriptions info plain",
        "subscriptions info hooked",
        "subscriptions info secret",
        "subscriptions add b=1 --name fresh",
        "subscriptions update plain --filter a=2",
        "subscriptions rm fresh --yes",
        "job ls",
        "job show 1",
        "job show 2",
        "job types",
        "job submit greet x",
        "job submit greet x --wait 0",
        "job wait 2",
        "job cancel 1",
        "schedule ls",
        "schedule add tock --every 60 --job greet",
        "schedule rm tock",
        "pub a=1",
        "sub a=1 --count 1 --timeout 0",
        "top --count 1 --every 0.1",
        "doctor",
        "queue delete another --yes",
    ],
)
def test_a_command_prints_json_and_nothing_else(words: str, url: str) -> None:
    done = CliRunner().invoke(commands, [*words.split(), "--url", url, "--json"])
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    for line in done.stdout.splitlines():
        json.loads(line)
    assert done.stdout or words.startswith("sub ")


def test_a_job_is_shown_whole(url: str) -> None:
    shown = json.loads(CliRunner().invoke(commands, ["job", "show", "2", "--url", url, "--json"]).stdout)
    assert (shown["state"], shown["input"], shown["trace"]) == ("cancelled", {"body_base64": "/wA="}, {})
    assert "input_digest" not in shown


def test_no_lines_are_no_messages(url: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(commands, ["queue", "send", "q", "--url", url, "--json"], input="")
    assert (done.exit_code, done.stdout) == (0, "[]\n")
