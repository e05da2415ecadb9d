"""The log of a real server: JSON lines with peers, why a webhook fails, and no secret."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Talker, until

from lavant import connect
from lavant.core.errors import LavantError
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of

SECRETS = {"key": "k-s3cr3t", "unknown": "u-s3cr3t", "metrics": "m-s3cr3t", "webhook": "w-s3cr3t", "body": "b-s3cr3t"}


def failures(talker: Talker) -> float:
    """Requests to webhooks that failed."""
    text = talker.ask("GET", "/metrics").body.decode()
    return float(text.split('lavant_webhook_attempts_total{result="failure"} ')[1].split()[0])


def assert_refused_as_a_problem(server: Served, sent: bytes) -> None:
    with socket.create_connection((server.host, server.port), timeout=WAIT_S_MAX) as connection:
        connection.sendall(sent)
        head, _, body = b"".join(iter(lambda: connection.recv(4096), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["code"] == "InvalidRequest"


def test_a_log_says_who_and_why_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.toml"
    scopes = ["publish", "subscribe", "admin"]
    keys.write_text(entry_text(KeyEntry(name="operator", sha256=sha256_of(SECRETS["key"]), scopes=scopes)))
    keys.chmod(0o600)
    monkeypatch.setenv("LAVANT_METRICS_KEY", SECRETS["metrics"])
    options = ("--log-format", "json", "--log-level", "debug", "--webhooks-to-private-networks")
    with Served(tmp_path / "data", "--keys-file", str(keys), *options) as server:
        with pytest.raises(LavantError, match="wants a key"), connect(server.url, key=SECRETS["unknown"]) as stranger:
            stranger.publish({"a": 1})
        hook = {"url": f"http://127.0.0.1:1/{SECRETS['webhook']}", "secret": SECRETS["webhook"]}
        talker = Talker(server, SECRETS["key"])
        new = {"name": "hooked", "filter": "a > 0", "webhook": hook}
        assert talker.ask("POST", "/subscriptions", json.dumps(new).encode()).status in (200, 201)
        with connect(server.url, key=SECRETS["key"]) as client:
            for number in range(20):
                client.publish({"a": 1 + number, "secret": SECRETS["body"]})
        until(lambda: failures(talker) >= 20)
        talker.close()
        for garbage in (b"garbage\r\n\r\n", b"FROB / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
            assert_refused_as_a_problem(server, garbage)
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert not [name for name, secret in SECRETS.items() if secret in server.log]
    [refused] = [line for line in lines if "without a known key (native)" in line["message"]]
    assert refused["peer"].startswith("127.0.0.1:")
    [malformed] = [line for line in lines if "not HTTP" in line["message"]]  # one line, whatever a scanner sends
    assert malformed["peer"].startswith("127.0.0.1:")
    [failed] = [line for line in lines if "webhook of subscription hooked failed" in line["message"]]
    assert (failed["level"], "refused" in failed["message"].lower()) == ("warning", True)
    assert "peer" not in failed  # it is no client's fault
