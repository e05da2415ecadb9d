"""The load of a broker after subscriptions have joined or left it (Sections 4.1.2 to 4.1.5).

Cases that the thesis leaves undefined: a broker without subscriptions (n = 0) has no delay to scale, so its delay grows
along the measured slope. Without one, or with so few subscriptions that its delay does not depend on their number yet,
a subscription is taken to cost it what it costs the broker that gives it away (`with_slope_of`). Otherwise it would
seem to match any number in no time, and get all. Queues of a broker without input or output stay as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.control.balancing.values import BrokerLoad

Floats = npt.NDArray[np.float64]
Changes = npt.NDArray[Any] | float


class LoadChange(msgspec.Struct, frozen=True, kw_only=True):
    """Subscriptions, input and output that a broker gains; negative for what it loses."""

    subscriptions: int = 0
    input_rate_per_s: float = 0.0
    output_rate_per_s: float = 0.0


def delay_slope_s(load: BrokerLoad) -> float:
    """Seconds of matching delay per subscription: measured, or d_m / n as (4.7) has it; 0 if there is neither."""
    if load.matching_delay_slope_s is not None:
        return load.matching_delay_slope_s
    return load.matching_delay_s / load.subscriptions if load.subscriptions > 0 else 0.0


def with_slope_of(giving: BrokerLoad, load: BrokerLoad) -> BrokerLoad:
    """The load of an accepting broker, with the slope of the offloading one if nothing is known of its own.

    >>> with_slope_of(BrokerLoad(subscriptions=100, matching_delay_s=0.5), BrokerLoad()).matching_delay_slope_s
    0.005
    """
    if delay_slope_s(load) > 0:
        return load
    return msgspec.structs.replace(load, matching_delay_slope_s=delay_slope_s(giving))


class LoadPrediction:
    """Load indices of a broker for a whole array of changes at once: `subscriptions`, `input_per_s` and
    `output_per_s` are gained, or lost if negative.

    >>> half = LoadPrediction(BrokerLoad(subscriptions=100, matching_delay_s=0.01), np.array([-50]), 0.0, 0.0)
    >>> half.delay_s
    array([0.005])
    >>> LoadPrediction(BrokerLoad(matching_delay_slope_s=0.0001), np.array([50]), 0.0, 0.0).delay_s
    array([0.005])
    """

    def __init__(
        self,
        load: BrokerLoad,
        subscriptions: Changes,
        input_per_s: Changes,
        output_per_s: Changes,
        bytes_each: float = 0,
    ) -> None:
        self._load = load
        self.subscriptions = np.maximum(0, load.subscriptions + subscriptions)
        self.input_rate_per_s = np.maximum(0.0, load.input_rate_per_s + input_per_s)
        self.output_bytes_per_s = np.maximum(0.0, load.output_bytes_per_s + output_per_s * bytes_each)
        self.delay_s = np.maximum(0.0, load.matching_delay_s + delay_slope_s(load) * subscriptions)
        """d'_m (4.7)."""

    @property
    def input(self) -> Floats:
        """I'_r = i'_r / m'_r (4.8)."""
        return self.input_rate_per_s * self.delay_s

    @property
    def output(self) -> Floats:
        """O'_r = o'_u / o_t (4.9, 4.10)."""
        return _ratio(self.output_bytes_per_s, self._load.bandwidth_bytes_per_s)

    @property
    def cpu(self) -> Floats:
        """The input utilisation, up to 1."""
        return np.minimum(1.0, self.input)

    @property
    def memory_bytes(self) -> tuple[Floats, Floats, Floats]:
        """m'_m (4.15), m'_i (4.13) and m'_o (4.14): matcher, input queue, output queue."""
        load = self._load
        growth = _growth(self.subscriptions, load.subscriptions)
        return (
            load.matcher_bytes * growth,
            load.input_queue_bytes * _growth(self.input_rate_per_s, load.input_rate_per_s) * growth,
            load.output_queue_bytes * _growth(self.output_bytes_per_s, load.output_bytes_per_s),
        )

    @property
    def memory(self) -> Floats:
        """M'_r (4.12, 4.16)."""
        matcher, input_queue, output_queue = self.memory_bytes
        return _ratio(matcher + input_queue + output_queue, self._load.memory_bytes_max)

    @property
    def highest(self) -> Floats:
        """The highest utilisation of the four resources."""
        return np.maximum(np.maximum(self.input, self.output), self.memory)


def predict(load: BrokerLoad, change: LoadChange, *, publication_bytes: float) -> BrokerLoad:
    """The load after one change."""
    found = LoadPrediction(
        load,
        np.array(change.subscriptions),
        np.array(change.input_rate_per_s),
        np.array(change.output_rate_per_s),
        publication_bytes,
    )
    matcher, input_queue, output_queue = found.memory_bytes
    return msgspec.structs.replace(
        load,
        subscriptions=int(found.subscriptions),
        input_rate_per_s=float(found.input_rate_per_s),
        matching_delay_s=float(found.delay_s),
        output_bytes_per_s=float(found.output_bytes_per_s),
        cpu=float(found.cpu),
        matcher_bytes=float(matcher),
        input_queue_bytes=float(input_queue),
        output_queue_bytes=float(output_queue),
    )


def _growth(after: Floats, before: float) -> Floats:
    return after / before if before > 0 else np.ones_like(after, dtype=np.float64)


def _ratio(used: Floats, total: float) -> Floats:
    if total > 0:
        return used / total
    return np.where(used > 0, np.inf, 0.0)
