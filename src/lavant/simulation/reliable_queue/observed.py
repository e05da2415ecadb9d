"""What was observed of a reliable queue, with confidence intervals: the same figures of every way to observe it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.layout import Floats
from lavant.simulation.queueing.steady import BATCHES, Estimate, batch_estimate

MESSAGES_MIN = 20 * BATCHES


class ObservedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Means and 95 % confidence intervals of a run, without its warm-up."""

    times_s: Floats
    """Delivery times, in the order of production."""
    delivery_s: Estimate
    p95_s: Estimate
    attempts: float
    """Deliveries of a message, including lost ones."""
    duplicates: float
    """Messages processed again although nothing was lost, for each message."""
    utilisation: float
    """Of consumers."""
    waiting: float | None
    """Messages that are sent and not in service; None if it was not observed."""

    @property
    def messages(self) -> int:
        return len(self.times_s)


def observed(
    delivery_s: Floats,
    *,
    attempts: float,
    duplicates: float,
    utilisation: float,
    waiting: float | None = None,
) -> ObservedQueue:
    """From delivery times in the order of production; consecutive parts of them are the batches.

    The percentile is that of all messages, since those of short batches are too low.
    """
    if len(delivery_s) < MESSAGES_MIN:
        raise InvalidValue(f"at least {MESSAGES_MIN} messages are needed for an interval, got {len(delivery_s)}")
    batches = np.array_split(delivery_s, BATCHES)
    return ObservedQueue(
        times_s=delivery_s,
        delivery_s=batch_estimate([batch.mean() for batch in batches]),
        p95_s=Estimate(
            _p95(delivery_s),
            batch_estimate([_p95(batch) for batch in batches]).half_width,
        ),
        attempts=attempts,
        duplicates=duplicates,
        utilisation=float(utilisation),
        waiting=None if waiting is None else float(waiting),
    )


def controlled(run: ObservedQueue, *, same_load: ObservedQueue, long: ObservedQueue) -> ObservedQueue:
    """A run with a control variate: its difference to a simulation of the same messages, plus a long simulation.

    Both of the short runs are off by the same chance, that of their load, so it cancels out. What is left is the
    chance of the difference, seen between batches, and that of the long run.
    """

    def changed(of_run: Estimate, of_same: Estimate, of_long: Estimate, half_width: float) -> Estimate:
        return Estimate(of_run.mean - of_same.mean + of_long.mean, math.hypot(half_width, of_long.half_width))

    of_means, of_tails = difference(run, same_load, np.mean), difference(run, same_load, _p95)
    return msgspec.structs.replace(
        run,
        delivery_s=changed(run.delivery_s, same_load.delivery_s, long.delivery_s, of_means.half_width),
        p95_s=changed(run.p95_s, same_load.p95_s, long.p95_s, of_tails.half_width),
    )


def difference(run: ObservedQueue, other: ObservedQueue, figure: Callable[[Floats], Any] = np.mean) -> Estimate:
    """How much longer deliveries of a run take than those of another one with the same messages."""
    pairs = zip(*(np.array_split(each.times_s, BATCHES) for each in (run, other)), strict=True)
    return batch_estimate([float(figure(mine) - figure(theirs)) for mine, theirs in pairs])


def _p95(times_s: Floats) -> float:
    return float(np.quantile(times_s, 0.95))
