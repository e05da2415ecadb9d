"""Whether a scenario repeats itself to the byte, in processes that hash differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LINES_MIN = 1_000
_SCRIPT = """
import sys
from lavant.simulation.kernel import Trace, run
from lavant.simulation.scenarios.registry import scenario_named

with open(sys.argv[1], "w", encoding="utf-8") as file:
    outcome = run(scenario_named(sys.argv[2]), int(sys.argv[3]), minutes=float(sys.argv[4]), trace=Trace(file))
print(outcome.digest, outcome.events, outcome.figures)
"""


def check_repetition(scenario: str, directory: Path, *, seed: int, minutes: float) -> None:
    printed, traces = [], []
    for hash_seed in (1, 2):
        trace = directory / f"trace-{seed}-{hash_seed}"
        command = [sys.executable, "-c", _SCRIPT, str(trace), scenario, str(seed), str(minutes)]
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        printed.append(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        traces.append(trace.read_bytes())
    assert printed[0] == printed[1]
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > LINES_MIN
