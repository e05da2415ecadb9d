"""What this machine can do at best, measured in the same run: multiply-adds in registers, and bytes through memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from tests.bench.timing import best_of

BANDWIDTH_BYTES = 1 << 28
CHAINS, ROUNDS = 256, 200_000


class Limits(NamedTuple):
    """Of one core: multiply-adds of singles (two operations each), and a stream of reads or of copies."""

    gflop_per_s: float
    read_gb_per_s: float
    copy_gb_per_s: float


def measure_limits() -> Limits:
    source = np.ones(BANDWIDTH_BYTES // 8)
    target = np.zeros_like(source)
    chains = np.zeros(CHAINS, np.float32)
    _multiply_add(chains, 10)
    _total(source)
    flops = 2.0 * CHAINS * ROUNDS / best_of(lambda: _multiply_add(chains, ROUNDS), 5)
    read = BANDWIDTH_BYTES / best_of(lambda: _total(source), 5)
    copy = BANDWIDTH_BYTES / best_of(lambda: np.copyto(target, source), 5)
    return Limits(flops / 1e9, read / 1e9, copy / 1e9)


def _compile(function: Any) -> Any:
    return numba.njit(fastmath=True, nogil=True, error_model="numpy")(function)


@_compile
def _multiply_add(chains: NDArray[np.float32], rounds: int) -> None:
    """Enough independent chains to fill the multiply-add units; their values stay in registers or the nearest cache."""
    a, b = np.float32(0.999), np.float32(0.001)
    for start in range(0, len(chains), 128):
        part = chains[start : start + 128].copy()
        for _ in range(rounds):
            for i in range(128):
                part[i] = part[i] * a + b
        chains[start : start + 128] = part


@_compile
def _total(values: NDArray[np.float64]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total
