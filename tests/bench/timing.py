"""Clocks of the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(work: Callable[[], Any], times: int) -> float:
    """The shortest of several runs: what else the machine does only ever adds."""
    return min(seconds(work) for _ in range(times))


def least_processor_time(work: Callable[[], Any], times: int) -> float:
    """The shortest of several runs on one core, in seconds of this process: what other programs take does not count."""

    def spent() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return min(spent() for _ in range(times))


def latency_us(work: Callable[[int], Any], samples: int) -> tuple[float, float]:
    """Median and 99th percentile of one call."""
    taken = [seconds(lambda number=number: work(number)) for number in range(samples)]  # type: ignore[misc]
    return float(np.quantile(taken, 0.5)) * 1e6, float(np.quantile(taken, 0.99)) * 1e6


def best_of_threads(work: Callable[[int], Any], threads: int, times: int) -> float:
    """The shortest of several runs of `work(0)` … `work(threads - 1)` at once."""
    with ThreadPoolExecutor(threads) as executor:
        return best_of(lambda: list(executor.map(work, range(threads))), times)


def rate_while(background: Callable[[], Any], work: Callable[[int], int], duration_s: float) -> float:
    """How many things a second `work`, called with 0, 1, 2, …, does while a thread repeats `background`."""
    stop = False

    def repeat() -> None:
        while not stop:
            background()

    with ThreadPoolExecutor(1) as executor:
        repeating = executor.submit(repeat)
        start = time.perf_counter()
        done = number = 0
        while (elapsed := time.perf_counter() - start) < duration_s:
            done += work(number)
            number += 1
        stop = True
        repeating.result()
    return done / elapsed


def processor_s(process: int) -> float:
    """Processor time of a process so far, of all threads that it has."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
