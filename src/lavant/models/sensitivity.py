"""Sensitivity to load, service rates and one more consumer; and the bottleneck.

The allocation paper (Section VI-C) asks for the sensitivity of job types to the load. Derivatives are central
differences: all changed networks are evaluated in one call.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from lavant.models.evaluation import Model
from lavant.models.layout import Floats

STEP = 1e-5
"""Relative change of a rate."""


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """Of the requests in the network (WIP). Where it is infinite, differences are nan."""

    wip_per_arrival_rate: tuple[float, ...]
    """dWIP/dλ_i for each job type, in requests per (1/s)."""
    wip_per_service_rate: tuple[float, ...]
    """dWIP/dμ_j for each topic; never positive, except through variability."""
    wip_saved_by_consumer: tuple[float, ...]
    """WIP(m) − WIP(m + e_j) for each topic."""
    bottleneck: str
    """The topic that becomes unstable first when all arrival rates grow alike."""
    headroom: float
    """The factor by which they may grow until then; below 1 it is already unstable."""


def sensitivity(model: Model, consumers: Sequence[int]) -> Sensitivity:
    """How the network reacts around one allocation.

    >>> from lavant.models.network import ModelJobType, Network, Topic
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.5)
    >>> found = sensitivity(Model(Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))), [1])
    >>> round(found.wip_per_arrival_rate[0], 4), found.bottleneck, found.headroom  # M/M/1: μ/(μ − λ)²
    (4.0, 'A', 2.0)
    """
    network = model.network
    m = np.array(consumers, np.int64)
    arrivals = np.array([job.arrival_rate_per_s for job in network.jobs])
    services = np.array([topic.service_rate_per_s for topic in network.topics])
    changed = _changed(arrivals)
    by_arrival = model.evaluate(m, arrival_rates_per_s=changed).wip
    by_service = model.evaluate(m, service_rates_per_s=_changed(services)).wip
    more = model.evaluate(np.vstack([m, m + np.eye(len(m), dtype=np.int64)])).wip
    loads = np.array(network.offered_load) / m
    first = int(np.argmax(loads))
    with np.errstate(invalid="ignore"):
        return Sensitivity(
            wip_per_arrival_rate=_slopes(by_arrival, arrivals),
            wip_per_service_rate=_slopes(by_service, services),
            wip_saved_by_consumer=tuple((more[0] - more[1:]).tolist()),
            bottleneck=network.topic_names[first],
            headroom=float(1.0 / loads[first]),
        )


def _changed(rates: Floats) -> Floats:
    """Rows with one rate larger, then rows with one smaller."""
    one = np.eye(len(rates)) * STEP
    return np.vstack([rates * (1.0 + one), rates * (1.0 - one)])


def _slopes(wip: Floats, rates: Floats) -> tuple[float, ...]:
    larger, smaller = wip[: len(rates)], wip[len(rates) :]
    return tuple(((larger - smaller) / (2.0 * STEP * rates)).tolist())
