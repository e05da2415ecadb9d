"""Evaluates many allocations, loads or service rates of one network at once, column by column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lavant.core.errors import InvalidValue
from lavant.models.decomposition import ROOM, requests_of_all
from lavant.models.layout import Floats, NetworkLayout, Numbers, layout_of
from lavant.models.network import Network

CONSUMERS_MAX = 100_000
"""Of one topic."""


class AllocationColumns(NamedTuple):
    """One row for each case."""

    consumers: Numbers
    arrival_rates_per_s: Floats
    topic_rates_per_s: Floats
    topic_scv: Floats
    """ca²_j: variability of arrivals at each topic."""
    requests: Floats
    """L_j at each topic; infinite where it is not stable."""

    @property
    def wip(self) -> Floats:
        """All requests in the network, each counted once (ν = 1)."""
        return np.asarray(self.requests.sum(axis=1))

    @property
    def response_s(self) -> Floats:
        """WIP/Σλ: the mean over all jobs, by Little's law; with forks, the total time of their tasks."""
        return np.asarray(self.wip / self.arrival_rates_per_s.sum(axis=1))


class Model:
    """The queueing network of Section IV of the allocation paper, ready to evaluate.

    With `refined`, waiting is corrected as in Whitt (1993); otherwise it is the paper's Eq. 2.

    >>> from lavant.models.network import ModelJobType, Topic
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=2.0)
    >>> model = Model(Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,)))
    >>> model.evaluate([[2], [3], [4]]).wip.round(4).tolist()
    [inf, 2.8889, 2.1739]
    """

    def __init__(self, network: Network, *, refined: bool = False) -> None:
        self.network = network
        self.refined = refined
        self.layout: NetworkLayout = layout_of(network)
        self._arrival_rates = np.array([job.arrival_rate_per_s for job in network.jobs])
        self._arrival_scv = np.array([job.arrival_scv for job in network.jobs])
        self._service_rates = np.array([topic.service_rate_per_s for topic in network.topics])
        self._service_scv = np.array([topic.service_scv for topic in network.topics])
        visits = np.zeros((len(network.jobs), len(network.topics)))
        np.add.at(visits, (self.layout.task_job, self.layout.task_topic), 1.0)
        self.visits: Floats = visits
        """Visits of each job type to each topic."""
        values = np.outer([job.value for job in network.jobs], [topic.value for topic in network.topics])
        self._valued_visits = visits * values

    def evaluate(
        self,
        consumers: ArrayLike,
        *,
        arrival_rates_per_s: ArrayLike | None = None,
        service_rates_per_s: ArrayLike | None = None,
    ) -> AllocationColumns:
        """One row per allocation; rates, if given, have one row each or one for all."""
        topics, jobs = len(self.network.topics), len(self.network.jobs)
        m = np.atleast_2d(np.asarray(consumers, dtype=np.int64))
        rates = np.atleast_2d(self._or_own(arrival_rates_per_s, self._arrival_rates))
        service = np.atleast_2d(self._or_own(service_rates_per_s, self._service_rates))
        self._check(m)
        rows = max(len(m), len(rates), len(service))
        _require_shape(m, rows, topics, "consumers")
        _require_shape(rates, rows, jobs, "arrival_rates_per_s")
        _require_shape(service, rows, topics, "service_rates_per_s")
        m = np.ascontiguousarray(m if len(m) == rows else np.broadcast_to(m, (rows, topics)))
        room = np.empty((ROOM, max(self.layout.task_job.size, topics)))
        topic_scv, found = np.empty(m.shape), np.empty(m.shape)
        requests_of_all(
            *self.layout,
            np.ascontiguousarray(rates),
            self._arrival_scv,
            np.ascontiguousarray(service),
            self._service_scv,
            m,
            self.refined,
            room,
            topic_scv,
            found,
        )
        topic_rates = np.broadcast_to(rates @ self.visits, m.shape)
        return AllocationColumns(m, np.broadcast_to(rates, (rows, jobs)), topic_rates, topic_scv, found)

    def weighted_wip(self, columns: AllocationColumns) -> Floats:
        """Σ ν L: requests weighted by value; job types share a topic's L as they share its arrivals."""
        visited = columns.topic_rates_per_s > 0
        valued = columns.arrival_rates_per_s @ self._valued_visits
        weights = np.divide(valued, columns.topic_rates_per_s, out=np.zeros_like(valued), where=visited)
        weighted = np.multiply(columns.requests, weights, out=np.zeros_like(valued), where=weights > 0)
        return np.asarray(weighted.sum(axis=1))

    @staticmethod
    def _or_own(given: ArrayLike | None, own: Floats) -> Floats:
        if given is None:
            return own
        rates = np.asarray(given, dtype=np.float64)
        if not (np.isfinite(rates).all() and (rates > 0).all()):
            raise InvalidValue(f"rates must be positive, got {rates.min() if rates.size else 'none'}")
        return rates

    def _check(self, consumers: Numbers) -> None:
        if consumers.size and not (consumers.min() >= 1 and consumers.max() <= CONSUMERS_MAX):
            raise InvalidValue(
                f"each topic has between 1 and {CONSUMERS_MAX} consumers, got {consumers.min()} to {consumers.max()}"
            )


def _require_shape(values: NDArray[Any], rows: int, columns: int, name: str) -> None:
    if values.shape not in ((1, columns), (rows, columns)):
        raise InvalidValue(f"{name} has the shape {values.shape}, expected {rows} or 1 rows of {columns}")
