"""Steps a second of the paper's net, and states a second of its state space, beside SNAKES, simpn and cpnpy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.bench.petri.neutral import neutral
from tests.bench.timing import least_processor_time

from lavant.models.petri.nets import NETS
from lavant.models.petri.nets.reliable_queue import ReliableQueue, reliable_queue
from lavant.models.petri.simulation import Simulation
from lavant.models.petri.state_space import explore

COLUMNS = ("Petri nets: the reliable queue, one core", "a second", "Lavant is faster by")
OTHERS = {"snakes": "SNAKES (no time)", "simpn": "simpn", "cpnpy": "cpnpy"}
SECONDS = 3.0
STEPS = 100_000
BIN = Path(sys.executable).parent


def measure_petri() -> list[list[str]]:
    """One line per engine, by processor time. No message is lost: not every engine has arcs that put one or none."""
    lines, steps_per_s = [], {}
    for order in ("out-of-order", "in-order"):
        flat = reliable_queue(ReliableQueue(order=order)).flatten()
        run = Simulation(flat, np.random.default_rng(1))
        steps_per_s[order] = STEPS / least_processor_time(lambda run=run: run.run(steps=STEPS), 10)  # type: ignore[misc]
        lines.append([f"steps, {order}", f"{steps_per_s[order]:,.0f}", ""])
    net = neutral(reliable_queue(ReliableQueue(reliability=1.0, nodes=1, replicas=1)).flatten())
    net["places"] = [place for place in net["places"] if not place[0].endswith("'Lost")]
    for transition in net["transitions"]:
        if transition["name"].endswith("'Transmit"):
            transition["puts"] = [["Recv_Proc'Arrived", "v_sent", None]]
    for engine, title in OTHERS.items():
        theirs = _measured(engine, json.dumps(net))
        ratio = f"{steps_per_s['out-of-order'] / theirs:,.0f} ×" if theirs else "failed, see above"
        lines.append([f"steps, out-of-order, {title}", f"{theirs:,.0f}" if theirs else "", ratio])
    small = ReliableQueue(**NETS["reliable-queue"].small)
    flat = reliable_queue(small).flatten()
    states = explore(flat).states
    seconds = least_processor_time(lambda: explore(flat), 5)
    lines.append([f"states, out-of-order, {states:,} of them", f"{states / seconds:,.0f}", ""])
    return lines


def _measured(engine: str, net: str) -> float | None:
    """In an environment with that engine, which exists for the run only."""
    command = [str(BIN / "uv"), "run", "-q", "--no-project", "--isolated", "--python", sys.executable, "--with", engine]
    script = str(Path(__file__).with_name("others.py"))
    found = subprocess.run(
        [*command, "python", script, engine, str(SECONDS)], input=net, capture_output=True, text=True, check=False
    )
    if found.returncode:
        print(found.stderr, file=sys.stderr)
        return None
    return float(json.loads(found.stdout.splitlines()[-1]))


if __name__ == "__main__":
    for line in measure_petri():
        print(*line, sep="  |  ")
