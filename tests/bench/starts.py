"""How long commands and servers take to start. Times are of the second run: bytecode and kernels are cached."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.bench.timing import best_of
from tests.integration.serving import LAVANT, Served

from lavant import connect

COLUMNS = ("start, the best of five", "seconds", "goal")
TIMES = 5
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure_starts() -> list[list[str]]:
    rows = []
    with tempfile.TemporaryDirectory() as directory, Served(Path(directory, "data")) as server:
        commands: list[tuple[Sequence[str], float]] = [
            (("--help",), 0.3),
            (("pub", "a=1", "--url", server.url), 0.4),
            (("queue", "ls", "--url", server.url), 0.4),
            (("plan", str(ROOT / "examples" / "allocation-case-study.toml")), 1.0),
        ]
        for words, goal_s in commands:
            _run(words)
            name = " ".join(word for word in words if "://" not in word and word != "--url" and "/" not in word)
            rows.append([f"lavant {name}", f"{best_of(lambda words=words: _run(words), TIMES):.2f}", f"{goal_s:g}"])  # type: ignore[misc]
        server.stop()
        restart_s = min(_first_delivery_s(Path(directory, "data")) for _ in range(TIMES))
    return [
        *rows,
        ["lavant serve: restart to first delivery", f"{restart_s:.2f}", "2"],
        ["lavant serve: first start to first delivery, nothing compiled", f"{_cold_delivery_s():.2f}", "2"],
    ]


def _cold_delivery_s() -> float:
    """With an empty cache of kernels, so the best of two is enough: each start compiles for a while."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        taken_s = []
        for name in ("one", "other"):
            patch.setenv("LAVANT_CACHE_DIR", f"{directory}/{name}-cache")
            taken_s.append(_first_delivery_s(Path(directory, name)))
        return min(taken_s)


def _run(words: Sequence[str]) -> None:
    subprocess.run([str(LAVANT), *words], check=True, capture_output=True, env=ENVIRONMENT)


def _first_delivery_s(data: Path) -> float:
    began_s = time.monotonic()
    with Served(data) as server:
        with connect(server.url) as client, client.subscribe("a = 1") as subscription:
            client.publish({"a": 1})
            next(iter(subscription.notifications(timeout_s=60)))
            took_s = time.monotonic() - began_s
        server.stop()
    return took_s
