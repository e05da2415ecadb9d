"""`lavant bench`: it measures, counts everything, and cleans up behind it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.integration.serving import LAVANT, WAIT_S_MAX, Served

from lavant import connect


def bench(*arguments: str) -> list[dict[str, float]]:
    done = subprocess.run(
        [str(LAVANT), "bench", *arguments, "--json"], capture_output=True, text=True, timeout=WAIT_S_MAX, check=True
    )
    results: list[dict[str, float]] = json.loads(done.stdout)
    return results


def test_figures_of_a_server_and_nothing_is_left_there(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        published, delivered = bench("pub", "--seconds", "0.5", "--subscribers", "3", "--url", served.url)
        assert delivered["count"] == 3 * published["count"] > 0
        [cycles] = bench("queue", "--seconds", "0.3", "--clients", "2", "--batch", "5", "--url", served.url)
        assert cycles["count"] > 0
        assert cycles["count"] % 5 == 0
        with connect(served.url) as client:
            assert list(client.queues()) == []
            assert list(client.subscriptions()) == []


def test_figures_of_matching_alone() -> None:
    [found] = bench("match", "stock", "--seconds", "0.2", "--subscriptions", "1000", "--batch", "10")
    assert found["count"] % 10 == 0
    assert found["p50_ms"] > 0
