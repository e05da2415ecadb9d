"""The burst of the allocation paper (Section VI-F), live: real workers, real processes, a minute as a second.

Ten seconds of calm take the place of the thirty that sixty jobs would need; the burst is as long as in the paper.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.integration.serving import Served

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscaling"
QUIET_S = 10.0
TASKS = {"type-1": 3, "type-2": 3, "type-3": 2}
AFFECTED_MAX = 0.15


def test_a_burst_is_absorbed_and_no_job_is_lost_or_done_twice() -> None:
    with Served(None, "--resources", str(EXAMPLE / "resources.toml")) as served:
        command = [sys.executable, str(EXAMPLE / "burst.py"), "--json", "--quiet", str(QUIET_S), "--url", served.url]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
        view = json.load(served.http("/resources"))
        assert served.stop() == 0
    jobs = found["jobs"]
    assert Counter(job["state"] for job in jobs) == {"completed": len(jobs)}
    assert sum(job["attempts"] for job in jobs) == sum(TASKS[job["type"]] for job in jobs)

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
