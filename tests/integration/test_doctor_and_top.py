"""`lavant doctor` and `lavant top` beside a real server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant.cli.reports import doctor as checks
from lavant.core.errors import InvalidValue, ServerUnreachable
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("top") / "data") as server:
        yield server


def lavant(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(LAVANT), *arguments], capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)


def test_doctor_finds_the_machine_and_the_server_well(served: Served, tmp_path: Path) -> None:
    done = lavant("doctor", "--url", served.url, "--data", str(tmp_path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {finding["what"]: finding["verdict"] for finding in json.loads(done.stdout)}
    assert {verdicts[what] for what in ("Python", "matching", "machine")} == {"ok"}
    assert verdicts[f"disk of {tmp_path}"] in {"ok", "note"}  # it is slow while others use it
    assert verdicts[f"server at http://{served.host}:{served.port}"] == "ok"


def test_doctor_says_what_is_bad_and_what_to_do(tmp_path: Path) -> None:
    done = lavant("doctor", "--url", "lavant://127.0.0.1:1", "--data", str(tmp_path / "missing"))
    assert done.returncode == 1
    assert "BAD" in done.stdout
    assert "→ start one with `lavant serve --data DIR --port 1`" in done.stdout
    assert "\x1b" not in done.stdout


def test_doctor_misses_a_server_that_it_was_asked_for(tmp_path: Path) -> None:
    done = lavant("doctor", "--url", "lavant://127.0.0.1:1", "--data", str(tmp_path), "--json")
    assert done.returncode == 1
    assert [each["what"] for each in json.loads(done.stdout) if each["verdict"] == "bad"] == [
        "server at http://127.0.0.1:1"
    ]
    [by_default] = checks.server("lavant://127.0.0.1:1", is_expected=False)
    assert by_default.verdict == "note"


def test_doctor_tries_the_key(tmp_path: Path) -> None:
    entry = KeyEntry(name="app", sha256=sha256_of("secret"), scopes=["publish"])
    (tmp_path / "keys.toml").write_text(entry_text(entry))
    with Served(tmp_path / "data", "--keys-file", str(tmp_path / "keys.toml")) as server:
        found = [checks.server(server.url, key)[1] for key in ("secret", "another", "")]
    assert [(each.what, each.verdict) for each in found] == [("API key", "ok"), ("API key", "bad"), ("API key", "bad")]


def test_top_shows_queues_and_rates(served: Served) -> None:
    assert lavant("queue", "create", "busy", "--url", served.url).returncode == 0
    watching = subprocess.Popen(
        [str(LAVANT), "top", "--url", served.url, "--json", "--every", "2", "--count", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(2):
        assert lavant("queue", "send", "busy", "hello", "--url", served.url).returncode == 0
    shown = watching.communicate(timeout=WAIT_S_MAX)[0]
    [row] = [queue for queue in json.loads(shown)["queues"] if queue["queue"] == "busy"]
    assert set(row) >= {"visible", "in_flight", "sent_per_s", "received_per_s", "oldest_s"}
    picture = lavant("top", "--url", served.url, "--count", "1", "--every", "0.1")
    assert "busy" in picture.stdout
    assert "requests/s" in picture.stdout


def test_top_without_a_server_is_one_clear_line() -> None:
    done = lavant("top", "--url", "lavant://127.0.0.1:1")
    assert done.returncode == ServerUnreachable.exit_code
    assert "start one with `lavant serve --data DIR --port 1`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["top", "resources", "queue ls"])
@pytest.mark.parametrize("url", ["nonsense", "lavant://", "lavants://127.0.0.1:1 --ca-file missing.pem"])
def test_a_wrong_address_or_authority_is_one_clear_line(command: str, url: str) -> None:
    done = lavant(*command.split(), "--url", *url.split())
    assert done.returncode == InvalidValue.exit_code
    assert done.stderr.startswith("lavant: the ")
    assert len(done.stderr.splitlines()) == 1
