"""A load that changes in steps: how latency and batches follow, and how soon they settle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.control.publishing import PublisherConfig
from lavant.simulation.kernel.distributions import S
from lavant.simulation.publisher.config import SystemConfig
from lavant.simulation.publisher.load import TABLE_II, LoadStep
from lavant.simulation.publisher.system import PublisherSystem

Floats: TypeAlias = NDArray[np.float64]

SETTLED_WITHIN = 0.15
"""A second counts as settled if its mean latency is this near to the final one of the step."""
SETTLED_FOR_S = 3
"""So many such seconds in a row are not chance."""

SHORT_TABLE_II = tuple(LoadStep(step.rate_per_s, 30) for step in TABLE_II)
"""The loads of Table II, long enough to see them settle."""


class StepResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to one step, as means over all seeds."""

    rate_per_s: float
    begins_s: float
    latency_ms: tuple[float, ...]
    """Of the publications received in each second of it; nan where there was none."""
    batch_size: tuple[float, ...]
    """Mean publications taken from the store at once, in each second."""
    settled_latency_ms: float
    settled_batch_size: float
    """Both of its second half."""

    @property
    def settling_s(self) -> int:
        """Seconds until the latency has settled; the length of the step if it has not."""
        ratio = np.asarray(self.latency_ms) / self.settled_latency_ms
        settled = np.abs(ratio - 1) <= SETTLED_WITHIN
        for second in range(len(settled) - SETTLED_FOR_S + 1):
            if settled[second : second + SETTLED_FOR_S].all():
                return second
        return len(settled)


def respond(
    config: PublisherConfig,
    *,
    seeds: Sequence[int],
    steps: tuple[LoadStep, ...] = SHORT_TABLE_II,
    system: SystemConfig | None = None,
) -> list[StepResponse]:
    """Run the steps once for each seed."""
    runs = [
        PublisherSystem(config, steps, system=SystemConfig() if system is None else system, seed=seed) for seed in seeds
    ]
    for run in runs:
        run.run()
    received_s = np.array([taken.received_us for run in runs for taken in run.taken]) / S
    latency_ms = np.array([taken.latency_us for run in runs for taken in run.taken]) / 1000
    fetched_s = np.array([batch.time_us for run in runs for batch in run.batches]) / S
    size = np.array([batch.size for run in runs for batch in run.batches], float)
    responses = []
    begins_s = 0.0
    for step in steps:
        half_s, end_s = begins_s + step.duration_s / 2, begins_s + step.duration_s
        responses.append(
            StepResponse(
                rate_per_s=step.rate_per_s,
                begins_s=begins_s,
                latency_ms=_by_second(received_s, latency_ms, begins_s, end_s),
                batch_size=_by_second(fetched_s, size, begins_s, end_s),
                settled_latency_ms=_mean_between(received_s, latency_ms, half_s, end_s),
                settled_batch_size=_mean_between(fetched_s, size, half_s, end_s),
            )
        )
        begins_s = end_s
    return responses


def _mean_between(times_s: Floats, values: Floats, begin_s: float, end_s: float) -> float:
    return float(values[(times_s >= begin_s) & (times_s < end_s)].mean())


def _by_second(times_s: Floats, values: Floats, begin_s: float, end_s: float) -> tuple[float, ...]:
    within = (times_s >= begin_s) & (times_s < end_s)
    second = (times_s[within] - begin_s).astype(int)
    seconds = int(end_s - begin_s)
    counts = np.bincount(second, minlength=seconds)
    sums = np.bincount(second, weights=values[within], minlength=seconds)
    means = np.full(seconds, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return tuple(means.tolist())
