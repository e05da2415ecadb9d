"""The interface of allocators: measurements come in, the number of consumers of each topic leaves."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
from msgspec.structs import replace

from lavant.control.allocation.config import Caution
from lavant.control.allocation.plans import AllocationPlan
from lavant.control.allocation.system.system import Consumers, Limits, System
from lavant.core.errors import InvalidValue
from lavant.models.network import Network


class ObservedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of the system. Unmeasured values are those of the allocator's `System`."""

    consumers: Consumers
    """Of each topic, including those that are starting."""
    arrival_rates_per_s: tuple[float, ...]
    """Of each job type, over the window."""
    requests: tuple[float, ...]
    """At each topic, including those in service."""
    window_s: float
    service_rates_per_s: tuple[float, ...] = ()
    """Of each topic, if measured; likewise the variabilities."""
    service_scvs: tuple[float, ...] = ()
    arrival_scvs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        numbers = (*self.consumers, *self.arrival_rates_per_s, *self.requests)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise InvalidValue(f"observed values must be numbers from 0 on, got {self}")
        if not (math.isfinite(self.window_s) and self.window_s > 0):
            raise InvalidValue(f"window_s must be positive, got {self.window_s}")


class Allocator(Protocol):
    """Deterministic: the same observations at the same times give the same plans."""

    name: str

    def decide(self, observed: ObservedLoad, now_ms: int) -> AllocationPlan:
        """The consumers that each topic should have from now on, always within the limits."""
        ...


def expected(system: System, observed: ObservedLoad, caution: Caution) -> System:
    """The system under the measured load, with caution: rates raised by so many standard errors, and enough consumers
    at each topic to work off waiting requests in time.
    """
    rates = [
        rate + caution.standard_errors * math.sqrt(rate / observed.window_s) for rate in observed.arrival_rates_per_s
    ]
    network = _measured(system.network, observed).with_arrival_rates(rates)
    limits = [Limits(least=low, most=high) for low, high in zip(system.least, system.most, strict=True)]
    if caution.drain_s is not None:
        for j, (topic, load) in enumerate(zip(network.topics, network.offered_load, strict=True)):
            waiting = max(0.0, observed.requests[j] - max(load, observed.consumers[j]))
            needed = math.ceil(load + waiting / (topic.service_rate_per_s * caution.drain_s)) if waiting else 0
            least = min(system.most[j], max(system.least[j], needed))
            limits[j] = Limits(least=least, most=system.most[j])
    return replace(system, network=network, limits=tuple(limits))


def _measured(network: Network, observed: ObservedLoad) -> Network:
    topics, jobs = network.topics, network.jobs
    if observed.service_rates_per_s:
        measured = zip(topics, observed.service_rates_per_s, observed.service_scvs, strict=True)
        topics = tuple(replace(topic, service_rate_per_s=rate, service_scv=scv) for topic, rate, scv in measured)
    if observed.arrival_scvs:
        jobs = tuple(replace(job, arrival_scv=scv) for job, scv in zip(jobs, observed.arrival_scvs, strict=True))
    return Network(topics=topics, jobs=jobs) if topics is not network.topics or jobs is not network.jobs else network
