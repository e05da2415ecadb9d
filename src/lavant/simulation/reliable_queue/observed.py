"""What was observed of a reliable queue, with confidence intervals: the same figures of every way to observe it."""

from __future__ import annotations

import msgspec
import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.layout import Floats
from lavant.simulation.queueing.steady import BATCHES, Estimate, batch_estimate

MESSAGES_MIN = 20 * BATCHES


class ObservedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Means and 95 % confidence intervals of a run, without its warm-up."""

    messages: int
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
        messages=len(delivery_s),
        delivery_s=batch_estimate([batch.mean() for batch in batches]),
        p95_s=Estimate(
            float(np.quantile(delivery_s, 0.95)),
            batch_estimate([np.quantile(batch, 0.95) for batch in batches]).half_width,
        ),
        attempts=attempts,
        duplicates=duplicates,
        utilisation=float(utilisation),
        waiting=None if waiting is None else float(waiting),
    )
