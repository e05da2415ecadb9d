"""How long commands and servers take to start. Times are of the second run: bytecode and kernels are cached."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.bench.timing import processor_s
from tests.integration.serving import LAVANT, Served

from lavant import connect

COLUMNS = ("start, the best of five", "seconds", "goal", "seconds of a processor")
TIMES = 5
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Start(NamedTuple):
    """How long something took, by the clock and of a processor, which other programs prolong less."""

    clock_s: float
    processor_s: float


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
            rows.append(_row(f"lavant {name}", [_run(words) for _ in range(TIMES)], goal_s))
        server.stop()
        restarts = [_first_delivery(Path(directory, "data")) for _ in range(TIMES)]
    return [
        *rows,
        _row("lavant serve: restart to first delivery", restarts, 2),
        _row("lavant serve: first start to first delivery, nothing compiled", _cold_deliveries(), 2),
    ]


def _row(name: str, starts: list[Start], goal_s: float) -> list[str]:
    clock_s, processor_s = (min(each) for each in zip(*starts, strict=True))
    return [name, f"{clock_s:.2f}", f"{goal_s:g}", f"{processor_s:.2f}"]


def _cold_deliveries() -> list[Start]:
    """With an empty cache of kernels, so two are enough: each start compiles for a while."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        starts = []
        for name in ("one", "other"):
            patch.setenv("LAVANT_CACHE_DIR", f"{directory}/{name}-cache")
            starts.append(_first_delivery(Path(directory, name)))
        return starts


def _run(words: Sequence[str]) -> Start:
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(LAVANT), *words], check=True, capture_output=True, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(time.monotonic() - began_s, used_s)


def _first_delivery(data: Path) -> Start:
    began_s = time.monotonic()
    with Served(data) as server:
        with connect(server.url) as client, client.subscribe("a = 1") as subscription:
            client.publish({"a": 1})
            next(iter(subscription.notifications(timeout_s=60)))
            took = Start(time.monotonic() - began_s, processor_s(server.process.pid))
        server.stop()
    return took
