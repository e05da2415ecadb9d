"""Batch sizes of one run of the publisher, over time."""

from __future__ import annotations

import numpy as np

from lavant.simulation.kernel.distributions import S
from lavant.simulation.publisher.config import SystemConfig
from lavant.simulation.publisher.latency import AS_IN_THE_PAPER, tuned
from lavant.simulation.publisher.load import LoadStep
from lavant.simulation.publisher.system import PublisherSystem


def run_publisher(controller: str, steps: tuple[LoadStep, ...], seed: int, *, batch_size: int = 1) -> PublisherSystem:
    """Run the paper's publisher with this controller."""
    config = tuned(AS_IN_THE_PAPER, controller, batch_size=batch_size)
    run = PublisherSystem(config, steps, system=SystemConfig(), seed=seed)
    run.run()
    return run


def batch_sizes(run: PublisherSystem) -> tuple[np.ndarray, np.ndarray]:
    """When batches were read, and how many publications they held."""
    times_s = np.array([batch.time_us for batch in run.batches]) / S
    return times_s, np.array([batch.size for batch in run.batches], float)


def binned(times_s: np.ndarray, values: np.ndarray, width_s: float, length_s: float) -> tuple[float | None, ...]:
    """Means over bins; None where nothing was read."""
    bins = round(length_s / width_s)
    place = np.minimum((times_s / width_s).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, weights=values, minlength=bins)
    return tuple(float(total / count) if count else None for total, count in zip(sums, counts, strict=True))
