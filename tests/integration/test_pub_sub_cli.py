"""`lavant pub`, `lavant sub` and `lavant subscriptions` against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served
from typer.testing import CliRunner

from lavant import Client, Key, NumericAttribute, Schema, connect
from lavant.cli import commands
from lavant.core.errors import FilterSyntaxError, InvalidValue, UnknownSubscription


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(None) as server:
        yield server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with connect(served.url) as connection:
        yield connection
        for state in list(connection.subscriptions()):
            connection.unsubscribe(state.name)


@pytest.fixture
def run(served: Served, client: Client) -> Runner:
    return Runner(served.url)


class Runner:
    """Runs commands: in this process, or, where signals and pipes matter, in one of their own."""

    def __init__(self, url: str) -> None:
        self._environment = {"LAVANT_URL": url, "COLUMNS": "120"}

    def __call__(self, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        result = CliRunner().invoke(commands, list(arguments), input=stdin, env=self._environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return str(result.stdout)

    def json(self, *arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin, code=code))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(LAVANT), *arguments],
            env=os.environ | self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# ── pub ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_attributes_have_the_types_that_they_look_like(run: Runner, client: Client) -> None:
    client.subscribe("exists(symbol)", name="s")
    id = run("pub", "symbol=IBM", "price=121.5", "late=true", 'code="007"', "part=007", "--payload", "héllo").strip()
    assert run.json("pub", "symbol=a=b").keys() == {"id"}
    first, second = lines_of(run("sub", "--name", "s", "--count", "2", "--json"))
    assert first.pop("@time_ms") > 0
    assert first == {
        "symbol": "IBM",
        "price": 121.5,
        "late": True,
        "code": "007",
        "part": "007",
        "@id": id,
        "@payload": "aMOpbGxv",
    }
    assert second["symbol"] == "a=b"


def test_lines_of_json_are_published_and_bad_ones_told(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    lines = '{"n": 1, "@id": "mine", "@payload": "aGV5"}\n\nnonsense\n{"n": [2]}\n{"n": 3}'
    result = run.json("pub", stdin=lines, code=1)
    assert result["published"] == 2
    assert [each["line"] for each in result["refused"]] == [3, 4]
    first, second = lines_of(run("sub", "--name", "s", "--count", "2", "--json"))
    assert (first["@id"], first["@payload"], second["n"]) == ("mine", "aGV5", 3)
    assert run("pub", stdin="").startswith("0 published")


def test_what_is_printed_can_be_published_again(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    run("pub", "n=1", "text=größer", "--payload", "x")
    printed = run("sub", "--name", "s", "--count", "1", "--json")
    run("pub", stdin=printed)
    assert run("sub", "--name", "s", "--count", "1", "--json") == printed


def test_tables_are_published_row_by_row(run: Runner, client: Client, tmp_path: Path) -> None:
    client.subscribe("exists(n)", name="s")
    (tmp_path / "rows.csv").write_text("n,symbol,day,is_new\n1,IBM,2026-02-03,true\n2,,,\n")
    columns = {"@id": ["a", "b"], "n": [3, None], "@payload": [b"p", None], "sizes": [None, [1]]}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert run.json("pub", "--file", str(tmp_path / "rows.csv"))["published"] == 2
    refused = run.json("pub", "--file", str(tmp_path / "rows.parquet"), code=1)["refused"]
    assert [each["line"] for each in refused] == [2]
    found = lines_of(run("sub", "--name", "s", "--count", "3", "--json"))
    kept = [{name: value for name, value in row.items() if name != "@time_ms"} for row in found]
    assert kept[0] | {"@id": ""} == {"n": 1, "symbol": "IBM", "day": "2026-02-03", "is_new": True, "@id": ""}
    assert kept[1] | {"@id": ""} == {"n": 2, "@id": ""}
    assert kept[2] == {"n": 3, "@id": "a", "@payload": "cA=="}


def test_a_rate_is_kept(run: Runner) -> None:
    result = run.json("pub", "--rate", "50", stdin='{"n": 1}\n' * 20)
    assert result["published"] == 20
    assert result["seconds"] >= 0.38


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pub", "symbol"], "NAME=VALUE"),
        (["pub", "a=1", "--file", "x.csv"], "not both"),
        (["pub", "--payload", "x"], "--payload needs NAME=VALUE"),
        (["pub", "--file", "none.jsonl"], "No such file"),
        (["pub", "--file", "none.parquet"], "none.parquet"),
        (["sub"], "give a filter"),
        (["sub", "n > 0", "--since", "1h"], "--since needs --name"),
        (["sub", "--name", "s", "--since", "yesterday"], "ISO 8601"),
        (["subscriptions", "add", "n > 0", "--name", "s", "--timeout-ms", "500"], "--timeout-ms needs --webhook"),
    ],
)
def test_bad_input_is_told(run: Runner, arguments: list[str], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        run(*arguments)


# ── sub ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_notifications_are_shown_on_one_line_whatever_they_hold(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    client.publish({"n": 1, "text": "two\nlines \x1b[2J", "code": "007", "is_new": True}, payload=b"\xff")
    [line] = run("sub", "--name", "s", "--count", "1").splitlines()
    assert line.endswith("  n=1  text=two\\nlines \\x1b[2J  code=007  is_new=true  payload=\ufffd")


def test_a_command_ends_after_so_many_or_so_long(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    client.publish_many([{"n": 1}, {"n": 2}, {"n": 3}])
    assert len(run("sub", "--name", "s", "--count", "2").splitlines()) == 2
    assert len(run("sub", "n > 0", "--name", "s", "--timeout", "3").splitlines()) == 1
    assert run("sub", "--name", "s", "--timeout", "0.1") == ""
    assert run("sub", "--name", "s", "--timeout", "0.1", "--count", "1", code=1) == ""


def test_what_is_older_can_be_passed_over(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    now_ms = int(time.time() * 1000)
    run("pub", stdin="".join(f'{{"n": {n}, "@time_ms": {now_ms - 3_600_000 * n}}}\n' for n in (3, 2, 1)))
    found = lines_of(run("sub", "--name", "s", "--since", "90m", "--timeout", "0.5", "--json"))
    assert [row["n"] for row in found] == [1]
    assert client.queue("s").describe().figures.acknowledged == 3


def test_a_filter_with_a_mistake_and_an_unknown_name_are_told(run: Runner) -> None:
    with pytest.raises(FilterSyntaxError):
        run("sub", "price >> 5")
    with pytest.raises(UnknownSubscription):
        run("sub", "--name", "none")


def test_one_process_prints_what_another_publishes_until_it_is_interrupted(run: Runner, client: Client) -> None:
    subscriber = run.start("sub", "n > 0", "--json")
    assert subscriber.stdout is not None
    assert subscriber.stderr is not None
    assert subscriber.stderr.readline().startswith("subscribed as tmp-")
    publisher = run.start("pub")
    assert publisher.stdin is not None
    for n in (1, 2):  # each comes before the next is written
        publisher.stdin.write(f'{{"n": {n}}}\n')
        publisher.stdin.flush()
        assert json.loads(subscriber.stdout.readline())["n"] == n
    assert publisher.communicate(timeout=WAIT_S_MAX)[0].startswith("2 published")
    subscriber.send_signal(signal.SIGINT)
    out, errors = subscriber.communicate(timeout=WAIT_S_MAX)
    assert (subscriber.returncode, out, errors) == (0, "", "")
    assert list(client.subscriptions()) == []


def test_whoever_runs_it_or_reads_may_have_seen_enough(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="s")
    with run.start("sub", "n > 0") as another:
        assert another.stderr is not None
        another.stderr.readline()
        another.terminate()
        assert another.wait(WAIT_S_MAX) == 0
    assert [state.name for state in client.subscriptions()] == ["s"], "SIGTERM ends it in good order, too"
    with run.start("sub", "--name", "s") as subscriber:
        assert subscriber.stdout is not None
        assert subscriber.stderr is not None
        client.publish({"n": 1})
        subscriber.stdout.readline()
        subscriber.stdout.close()
        client.publish({"n": 2})
        assert subscriber.wait(WAIT_S_MAX) == 0
        assert subscriber.stderr.read() == "subscribed as s; Ctrl-C ends it\n"
    with client.subscription("s") as again:
        assert [each.attributes["n"] for each in again.notifications(count=1, timeout_s=WAIT_S_MAX)] == [2]


def test_the_server_need_not_see_any_content(run: Runner, client: Client, tmp_path: Path) -> None:
    key = str(tmp_path / "key.json")
    Key.generate(Schema.of(NumericAttribute("price", 0, 1000, 0.01))).save(Path(key))
    run("subscriptions", "add", "price > 100", "--name", "s", "--encrypt", key)
    assert run.json("subscriptions", "info", "s")["filter"] is None
    run("pub", "price=121.5", "symbol=IBM", "--encrypt", key)
    [row] = lines_of(run("sub", "--name", "s", "--count", "1", "--json", "--encrypt", key))
    assert (row["symbol"], row["price"]) == ("IBM", 121.5)
    run("subscriptions", "update", "s", "--filter", "price < 100", "--encrypt", key)
    run("pub", "price=121.5", "symbol=IBM", "--encrypt", key)
    run("pub", "price=7", "symbol=ACME", "--encrypt", key)
    [row] = lines_of(run("sub", "--name", "s", "--count", "1", "--json", "--encrypt", key))
    assert (row["symbol"], row["price"]) == ("ACME", 7)


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_subscriptions_are_added_listed_shown_and_removed(run: Runner, client: Client) -> None:
    assert run("subscriptions", "add", "n > 0", "--name", "one") == "one goes to queue one\n"
    run("subscriptions", "add", "n > 0", "--name", "one")
    hook = ["--webhook", "http://127.0.0.1:1/", "--attempts-max", "3", "--secret", "s3cret"]
    assert run.json("subscriptions", "add", "m > 0", "--name", "two", *hook)["webhook"]["attempts_max"] == 3
    client.publish({"n": 1})
    listed = [line.split() for line in run("subscriptions", "ls").splitlines()]
    assert listed[1] == ["one", "1", "0", "queue", "one", "n", ">", "0"]
    assert listed[2] == ["two", "0", "0", "http://127.0.0.1:1/", "m", ">", "0"]
    assert [each["name"] for each in run.json("subscriptions", "ls", "t")] == ["two"]
    assert run("subscriptions", "update", "one", "--filter", "n > 9") == "one now matches n > 9\n"
    client.publish({"n": 2})
    assert run("subscriptions", "ls").splitlines()[1].split() == ["one", "1", "0", "queue", "one", "n", ">", "9"]
    assert run.json("subscriptions", "update", "two", "--filter", "m > 9")["webhook"]["attempts_max"] == 3
    shown = run("subscriptions", "info", "two")
    assert "two-dead, after 3 attempts" in shown
    assert "s3cret" not in shown + run("subscriptions", "info", "two", "--json")
    run("subscriptions", "rm", "one", stdin="n\n", code=1)
    assert run("subscriptions", "rm", "one", "--yes") == "one is gone\n"
    assert [each["name"] for each in run.json("subscriptions", "ls")] == ["two"]
    client.queue("two-dead").delete()


def test_quiet_commands_print_results_and_errors_only(run: Runner, client: Client) -> None:
    assert run("subscriptions", "add", "a > 1", "--name", "s", "-q") == ""
    assert run("subscriptions", "update", "s", "--filter", "a > 2", "-q") == ""
    assert run("pub", "-q", stdin='{"a": 3}\n{"a": 4}\n') == ""
    assert run.json("subscriptions", "update", "s", "--filter", "a > 3", "-q")["filter"] == "a > 3"
    assert run("subscriptions", "info", "s", "-q").startswith("name")
    assert run("subscriptions", "rm", "s", "--yes", "-q") == ""


def test_a_match_is_explained(run: Runner) -> None:
    assert run("explain", "match", "n > 0 and m > 0", '{"n": 1, "m": 0}', code=1).splitlines() == [
        "filter   m > 0 and n > 0",
        "  FAILS  m > 0    (is 0)",
        "  holds  n > 0    (is 1)",
        "does not match",
    ]
    assert run.json("explain", "match", "n > 0", '{"n": 1}')["matches"] is True
    said = run("explain", "match", "n > 0", '{"n": "1"}', code=1)
    assert "  FAILS  n > 0    (is '1', text; a number is wanted)" in said.splitlines()


def test_a_temporary_subscription_is_shown_as_such_and_survives_being_looked_at(run: Runner, client: Client) -> None:
    client.subscribe("n > 0", name="kept")
    temporary = client.subscribe("n > 0")
    kept, listed = run.json("subscriptions", "ls")
    assert (listed["name"], listed["lease_ms"]) == (temporary.name, 60_000)
    assert listed["expires_ms"] > listed["created_ms"]
    assert "lease_ms" not in kept
    assert run("subscriptions", "ls").splitlines()[2].split()[3].endswith("Z")
    assert "unless its client renews the lease" in run("subscriptions", "info", temporary.name)
    assert "ends" not in run("subscriptions", "info", "kept")
    assert [state.name for state in client.subscriptions()] == ["kept", temporary.name]
