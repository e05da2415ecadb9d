"""Who sees the metrics of a real server, and where."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant.service.auth.keys import KeyEntry, entry_text, sha256_of


def status(url: str, key: str = "", **headers: str) -> int:
    request = urllib.request.Request(url, headers=headers | ({"authorization": f"Bearer {key}"} if key else {}))
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            assert b"# EOF" in response.read() or "healthz" in url
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_key_for_metrics_is_asked_for_and_an_operators_will_do(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    scopes = ["publish", "subscribe", "admin"]
    entries = [
        KeyEntry(name="boss", sha256=sha256_of("boss"), scopes=scopes),
        KeyEntry(name="tenant", sha256=sha256_of("tenant"), scopes=scopes, namespace="shop"),
        KeyEntry(name="clerk", sha256=sha256_of("clerk"), scopes=["publish"]),
    ]
    keys.write_text("\n".join(map(entry_text, entries)))
    with Served(None, "--metrics-key", "scraper", "--keys-file", str(keys)) as server:
        url = f"http://{server.host}:{server.port}/metrics"
        shown = {key: status(url, key) for key in ("scraper", "boss", "tenant", "clerk", "other", "")}
        assert shown == {"scraper": 200, "boss": 200, "tenant": 401, "clerk": 401, "other": 401, "": 401}
        looked = subprocess.run(
            [LAVANT, "top", "--url", server.url, "--key", "scraper", "--count", "1", "--every", "0.1", "--json"],
            capture_output=True,
            check=True,
            timeout=WAIT_S_MAX,
        )
        assert b"requests_per_s" in looked.stdout


def test_metrics_may_have_a_port_of_their_own() -> None:
    with Served(None, "--metrics-port", "0") as server:
        found = re.search(r"metrics at 127\.0\.0\.1:([0-9]+);", server.line)
        assert found is not None
        own = f"http://127.0.0.1:{found[1]}"
        assert status(f"{own}/metrics") == 200
        assert status(f"{own}/healthz") == 200
        assert status(f"{own}/openapi.json") == 404
        assert status(f"{own}/metrics", Host="evil.example") == 421
        assert status(f"{own}/metrics", Origin="http://evil.example") == 403
        assert status(f"http://{server.host}:{server.port}/metrics") != 200
        assert status(f"http://{server.host}:{server.port}/healthz") == 200


@pytest.mark.parametrize(
    "options",
    [("--metrics-port", "0", "--metrics-host", "0.0.0.0"), ("--metrics-host", "127.0.0.1")],
    ids=["open to other machines", "no port"],
)
def test_options_that_would_show_too_much_or_nothing_are_refused(options: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [LAVANT, "serve", "--memory", "--port", "0", *options], capture_output=True, timeout=WAIT_S_MAX, check=False
    )
    assert ended.returncode == 2
    assert b"--metrics-" in ended.stderr
