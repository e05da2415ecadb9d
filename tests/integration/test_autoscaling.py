"""The burst of the allocation paper (Section VI-F), live: real workers, real processes, a minute as a second.

Ten seconds of calm take the place of the thirty that sixty jobs would need; the burst is as long as in the paper.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import Served

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscaling"
QUIET_S = 10.0
TASKS = {"type-1": 3, "type-2": 3, "type-3": 2}
AFFECTED_MAX = 0.15


@pytest.fixture(scope="module")
def burst() -> tuple[dict[str, Any], dict[str, Any]]:
    """What became of the jobs, and what the manager says at the end."""
    with Served(None, "--resources", str(EXAMPLE / "resources.toml")) as served:
        command = [sys.executable, str(EXAMPLE / "burst.py"), "--json", "--quiet", str(QUIET_S), "--url", served.url]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=180).stdout)
        view = json.load(served.http("/resources"))
        assert served.stop() == 0
    return found, view


def test_a_burst_is_seen_and_no_job_is_lost_or_done_twice(burst: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found, view = burst
    jobs = found["jobs"]
    assert Counter(job["state"] for job in jobs) == {"completed": len(jobs)}
    assert sum(job["attempts"] for job in jobs) == sum(TASKS[job["type"]] for job in jobs)
    assert view["decisions"], "the load has become several times as high"
    assert sum(topic["wanted"] for topic in view["topics"]) > len(view["topics"])


@pytest.mark.soak  # it needs a machine that is quiet: what others do delays tasks like a load of its own
def test_a_burst_is_absorbed(burst: tuple[dict[str, Any], dict[str, Any]]) -> None:
    found, view = burst
    jobs = found["jobs"]
    *_, first = view["decisions"]
    assert "went from" in first["reason"]
    seen_s = first["time_ms"] / 1000 - found["begin_s"] - QUIET_S
    assert 0 < seen_s < 10
    assert [topic["wanted"] for topic in view["topics"]] == [2, 2, 1, 4]

    before = [job["response_s"] for job in jobs if job["arrived_s"] < QUIET_S]
    level_s = sum(before) / len(before)
    affected = [job for job in jobs if job["arrived_s"] >= QUIET_S and job["response_s"] > 2 * level_s]
    assert len(affected) <= AFFECTED_MAX * len(jobs)
    last = [job["response_s"] for job in jobs[-100:]]
    assert sum(last) / len(last) < 1.25 * level_s
