"""A fleet of brokers as columns: matching delay, queues and bandwidth, advanced by a second at a time (Section 5.1).

Matching takes a time proportional to the number of subscriptions and inverse to the CPU speed; bandwidth limits what
leaves. Both have a queue before them. `DELAY_S_MHZ` and `PUBLICATION_BYTES` are chosen such that the local experiment
of the thesis settles near its loads: .5 input utilisation at .02 s matching delay, and a similar output utilisation.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.control.balancing.values import BrokerLoad
from lavant.core.errors import InvalidValue

DELAY_S_MHZ = 0.0165
"""Seconds that one subscription adds to the matching delay of a broker of 1 MHz."""
PUBLICATION_BYTES = 200
SUBSCRIPTION_BYTES = 2000
SYSTEM_SUBSCRIPTIONS = 5
"""Control subscriptions of each broker, which never move."""
WINDOW_S = 10
"""Rates are means over this time."""

Floats = npt.NDArray[np.float64]


class BrokerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One edge broker, as in Tables 5.3 to 5.5."""

    name: str
    cluster: str = "B0"
    cpu_mhz: float
    memory_mb: float = 64.0
    bandwidth_mbps: float

    def __post_init__(self) -> None:
        for name in ("cpu_mhz", "memory_mb", "bandwidth_mbps"):
            if not getattr(self, name) > 0:
                raise InvalidValue(f"{name} of broker {self.name} must be positive, got {getattr(self, name)}")


class Fleet:
    """The queues and rates of all edge brokers."""

    def __init__(self, specs: tuple[BrokerSpec, ...]) -> None:
        count = len(specs)
        self.specs = specs
        self.cpu_mhz = np.array([spec.cpu_mhz for spec in specs])
        self.bandwidth = np.array([spec.bandwidth_mbps for spec in specs]) * 1e6 / 8
        self.memory = np.array([spec.memory_mb for spec in specs]) * 1e6
        self.subscriptions = np.full(count, SYSTEM_SUBSCRIPTIONS, np.int64)
        self.waiting = np.zeros(count)
        """Publications before the matcher."""
        self._waiting_deliveries = np.zeros(count)
        self.out_bytes = np.zeros(count)
        self.cpu = np.zeros(count)
        self._received = np.zeros((WINDOW_S, count))
        self._sent = np.zeros((WINDOW_S, count))

    def advance(self, received: Floats, deliveries: Floats, second: int) -> None:
        """Publications that arrive within this second, and deliveries that they lead to, by broker."""
        self.waiting += received
        self._waiting_deliveries += deliveries
        capacity = 1.0 / self.delay_s
        processed = np.minimum(self.waiting, capacity)
        share = np.divide(processed, self.waiting, out=np.zeros_like(processed), where=self.waiting > 0)
        matched = self._waiting_deliveries * share
        self.waiting -= processed
        self._waiting_deliveries -= matched
        self.cpu = processed / capacity
        self.out_bytes += matched * PUBLICATION_BYTES
        self.out_bytes -= np.minimum(self.out_bytes, self.bandwidth)
        self._received[second % WINDOW_S] = received
        self._sent[second % WINDOW_S] = matched * PUBLICATION_BYTES

    @property
    def delay_s(self) -> Floats:
        """Matching delay."""
        return np.asarray(self.subscriptions * DELAY_S_MHZ / self.cpu_mhz)

    @property
    def input_rate_per_s(self) -> Floats:
        return np.asarray(self._received.mean(axis=0))

    @property
    def input_utilization(self) -> Floats:
        return self.input_rate_per_s * self.delay_s

    @property
    def output_bytes_per_s(self) -> Floats:
        return np.asarray(self._sent.mean(axis=0))

    @property
    def output_utilization(self) -> Floats:
        return self.output_bytes_per_s / self.bandwidth

    @property
    def input_queuing_s(self) -> Floats:
        return self.waiting * self.delay_s

    @property
    def output_queuing_s(self) -> Floats:
        return self.out_bytes / self.bandwidth

    def loads(self) -> list[BrokerLoad]:
        """What each broker measures now."""
        rates, delays, out = self.input_rate_per_s.tolist(), self.delay_s.tolist(), self.output_bytes_per_s.tolist()
        return [
            BrokerLoad(
                subscriptions=int(self.subscriptions[b]),
                input_rate_per_s=rates[b],
                matching_delay_s=delays[b],
                output_bytes_per_s=out[b],
                bandwidth_bytes_per_s=float(self.bandwidth[b]),
                publication_bytes=PUBLICATION_BYTES,
                cpu=float(self.cpu[b]),
                backlog=int(self.waiting[b]),
                matcher_bytes=float(self.subscriptions[b] * SUBSCRIPTION_BYTES),
                input_queue_bytes=float(self.waiting[b] * PUBLICATION_BYTES),
                output_queue_bytes=float(self.out_bytes[b]),
                memory_bytes_max=float(self.memory[b]),
            )
            for b in range(len(self.specs))
        ]
