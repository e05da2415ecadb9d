"""Other simulators on M/M/1, for comparison: SimPy and Ciw, installed for this run only."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

MESSAGES = 40_000
PACKAGES = ("simpy", "ciw")


def measure_simulators(arrival_rate: float, service_rate: float) -> list[tuple[str, int, float]]:
    """Name, events and seconds of each simulator; none if they cannot be installed."""
    with tempfile.TemporaryDirectory() as directory:
        uv = Path(sys.executable).with_name("uv")
        command = [str(uv), "pip", "install", "--quiet", "--target", directory, *PACKAGES]
        if subprocess.run(command, check=False).returncode:
            print(f"SimPy and Ciw cannot be installed: {' '.join(command)}", file=sys.stderr)
            return []
        sys.path.append(directory)
        try:
            return [
                ("M/M/1 events, SimPy", 2 * MESSAGES, _simpy(arrival_rate, service_rate)),
                ("M/M/1 events, Ciw", 2 * MESSAGES, _ciw(arrival_rate, service_rate)),
            ]
        finally:
            sys.path.remove(directory)


def _simpy(arrival_rate: float, service_rate: float) -> float:
    simpy: Any = import_module("simpy")
    random = Random(1)
    world = simpy.Environment()
    server = simpy.Resource(world, 1)

    def message() -> Any:
        with server.request() as turn:
            yield turn
            yield world.timeout(random.expovariate(service_rate))

    def arrivals() -> Any:
        for _ in range(MESSAGES):
            yield world.timeout(random.expovariate(arrival_rate))
            world.process(message())

    world.process(arrivals())
    start_s = time.perf_counter()
    world.run()
    return time.perf_counter() - start_s


def _ciw(arrival_rate: float, service_rate: float) -> float:
    ciw: Any = import_module("ciw")
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=arrival_rate)],
        service_distributions=[ciw.dists.Exponential(rate=service_rate)],
        number_of_servers=[1],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    start_s = time.perf_counter()
    simulation.simulate_until_max_customers(MESSAGES, method="Finish")
    return time.perf_counter() - start_s
