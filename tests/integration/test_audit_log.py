"""The audit log of a real server: rotation, a configuration file, and a disk that is full."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import Served

import lavant
from lavant.core.errors import AccessDenied
from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keys_file(directory: Path) -> Path:
    path = directory / "keys.toml"
    admin = KeyEntry(name="admin", sha256=sha256_of("s3cr3t"), scopes=["admin"], namespace="shop")
    path.write_text(entry_text(admin))
    return path


def test_who_did_what_is_told_and_the_log_can_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    config = tmp_path / "serve.toml"
    config.write_text(f'audit-log = "{path}"\nkeys-file = "{keys_file(tmp_path)}"\n')
    with Served(tmp_path / "data", "--config", str(config)) as server:
        with lavant.connect(server.url, key="s3cr3t") as client:
            client.create_queue("orders")
            with pytest.raises(AccessDenied):
                client.queue("orders").send(b"tea")
        with pytest.raises(AccessDenied):
            lavant.connect(server.url, key="wrong").close()
        until(lambda: len(lines_of(path)) == 3)
        created, sent, stranger = lines_of(path)
        assert (created["action"], created["outcome"], created["queue"]) == ("CreateQueue", "ok", "orders")
        assert (created["key"], created["namespace"], created["protocol"]) == ("admin", "shop", "native")
        assert created["peer"].startswith("127.0.0.1:")
        assert (sent["action"], sent["outcome"]) == ("Send", "denied")
        assert (stranger["action"], stranger["outcome"]) == ("Authenticate", "denied")
        path.rename(tmp_path / "audit.log.1")
        server.process.send_signal(signal.SIGHUP)
        until(path.exists)
        with lavant.connect(server.url, key="s3cr3t") as client:
            client.queue("orders").delete()
        until(lambda: [line["action"] for line in lines_of(path)] == ["DeleteQueue"])
        assert server.stop() == 0
    assert "s3cr3t" not in path.read_text() + (tmp_path / "audit.log.1").read_text()


def test_a_full_disk_does_not_stop_the_server_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    with Served(None, "--audit-log", str(path)) as server:
        with lavant.connect(server.url) as client:
            client.create_queue("orders")
        server.wait_for_metric("lavant_audit_failing", 1)
        assert server.metric("lavant_audit_lost_total") == 1
        with server.http("/healthz") as response:
            assert response.status == 200
            assert "cannot be written: No space left on device" in response.read().decode()
        path.unlink()
        server.process.send_signal(signal.SIGHUP)
        until(path.exists)
        with lavant.connect(server.url) as client:
            client.queue("orders").delete()
        until(lambda: len(lines_of(path)) == 2)
        lost, deleted = lines_of(path)
        assert (lost["action"], lost["outcome"], lost["lines"]) == ("AuditLog", "lost", 1)
        assert deleted["action"] == "DeleteQueue"
        server.wait_for_metric("lavant_audit_failing", 0)
