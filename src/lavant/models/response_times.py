"""Distributions of response times: percentiles of routes, means and percentiles of jobs that fork and join.

For a route, the mean response is the sum over its visits of L_j/λ_j, without any of this. For a fork that sum counts
parallel tasks one after the other, and is 20 to 25 % too high; the longest path by mean times is too low, because the
slower branch varies. So each task's time is modelled as

    wait + service,   wait = 0 with probability 1 − π, else gamma with mean W/π and Whitt's variability (`delay`)
                      service = gamma with the topic's mean and variability

and a job's end is computed along its graph: a task begins with the latest of its predecessors. The mean wait W = (L_j −
λ_j/μ_j)/λ_j comes from the model, so means agree with it. Times at different topics are taken as independent, waits of
one job at the same topic as equal, because it finds much the same queue again: taken as independent too, the 95th
percentile of jobs that return to a busy topic came out up to 20 % too low. Simulation shows the remaining error
(tests/models/test_percentiles.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lavant.core.errors import InvalidValue
from lavant.models.delay import delay_probability, delay_scv
from lavant.models.evaluation import Model
from lavant.models.layout import Floats, Numbers
from lavant.models.network import ModelJobType, Topic

POINTS = 4096
_GRID = 2048


@lru_cache(maxsize=1024)
def gamma_quantiles(scv: float) -> Floats:
    """The middles of equally likely parts of the gamma distribution with mean 1, ascending; their mean is 1.

    The density of the logarithm is smooth for every shape, so its cumulative sum over a grid will do.

    >>> float(gamma_quantiles(1.0)[POINTS * 95 // 100].round(2)), gamma_quantiles(0.0).tolist()[:2]
    (3.0, [1.0, 1.0])
    """
    if scv <= 0:
        return np.ones(POINTS)
    deviation = np.sqrt(scv)
    log = np.linspace(-8.0 * deviation - 25.0 * scv, np.log1p(8.0 * deviation + 40.0 * scv), _GRID)
    exponent = (log - np.exp(log)) / scv
    cumulated = np.cumsum(np.exp(exponent - exponent.max()))
    middles = (np.arange(POINTS) + 0.5) / POINTS
    values = np.exp(np.interp(middles, cumulated / cumulated[-1], log))
    values = np.asarray(values / values.mean())
    values.flags.writeable = False
    return values


@lru_cache(maxsize=4096)
def shuffle(number: int) -> Numbers:
    """The `number`-th fixed order of the parts: sorted by a hash (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = (np.arange(POINTS, dtype=np.uint64) + np.uint64(1 + number * POINTS)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    order = np.argsort(x ^ (x >> np.uint64(31)), kind="stable")
    order.flags.writeable = False
    return order


class ResponseTimes:
    """Response times of each job type under one allocation, as equally likely values.

    >>> from lavant.models.network import Network
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.5)
    >>> times = ResponseTimes(Model(Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))), [1])
    >>> round(times.mean_s("1"), 2), round(times.percentile_s(0.95), 1)  # M/M/1: 2 s, and 3 times as much
    (2.0, 6.0)
    """

    def __init__(self, model: Model, consumers: Sequence[int]) -> None:
        self._network = model.network
        columns = model.evaluate([list(consumers)])
        self._stations = {
            topic.name: _Station(number, topic, int(m), rate, scv, found)
            for number, topic, m, rate, scv, found in zip(
                range(len(consumers)),
                model.network.topics,
                consumers,
                columns.topic_rates_per_s[0].tolist(),
                columns.topic_scv[0].tolist(),
                columns.requests[0].tolist(),
                strict=True,
            )
        }
        self.stable = bool(np.isfinite(columns.requests).all())
        self._finished: dict[str, Floats] = {}

    def of(self, job: str) -> Floats:
        """Equally likely response times of a job type, in seconds."""
        if job not in self._finished:
            found = [known for known in self._network.jobs if known.name == job]
            if not found:
                names = ", ".join(self._network.job_names)
                raise InvalidValue(f"there is no job type {job!r}; there are {names}")
            self._finished[job] = self._finish(found[0])
        return self._finished[job]

    def mean_s(self, job: str | None = None) -> float:
        """The mean of a job type, or of all jobs."""
        if job is not None:
            return float(self.of(job).mean())
        rates = np.array([known.arrival_rate_per_s for known in self._network.jobs])
        return float(rates @ [self.mean_s(name) for name in self._network.job_names] / rates.sum())

    def percentile_s(self, fraction: float, job: str | None = None) -> float:
        """The time within which this fraction of the jobs of a type, or of all, are done."""
        if not 0 < fraction < 1:
            raise InvalidValue(f"a percentile is a fraction between 0 and 1, such as 0.95; got {fraction}")
        if not self.stable and any(math.isinf(self.mean_s(name)) for name in self._names(job)):
            return math.inf
        if job is not None:
            return float(np.quantile(self.of(job), fraction))
        values = np.concatenate([self.of(name) for name in self._network.job_names])
        weights = np.repeat([known.arrival_rate_per_s for known in self._network.jobs], POINTS)
        order = np.argsort(values, kind="stable")
        shares = np.cumsum(weights[order])
        return float(values[order[np.searchsorted(shares, fraction * shares[-1])]])

    def _names(self, job: str | None) -> tuple[str, ...]:
        return self._network.job_names if job is None else (job,)

    def _finish(self, job: ModelJobType) -> Floats:
        done: dict[str, Floats] = {}
        for number, task in enumerate(sorted(job.tasks, key=lambda task: job.depths[task.name])):
            station = self._stations[task.topic]
            time_s = station.waits[shuffle(2 * station.number)] + station.services[shuffle(2 * number + 1)]
            start = np.zeros(POINTS) if not task.after else np.maximum.reduce([done[name] for name in task.after])
            done[task.name] = start + time_s
        last = set(done) - {name for task in job.tasks for name in task.after}
        return np.asarray(np.maximum.reduce([done[name] for name in sorted(last)]))


class _Station:
    """Equally likely waits and services at a topic."""

    def __init__(
        self, number: int, topic: Topic, consumers: int, rate_per_s: float, arrival_scv: float, requests: float
    ) -> None:
        self.number = number
        load = rate_per_s / topic.service_rate_per_s
        self.services = gamma_quantiles(topic.service_scv) / topic.service_rate_per_s
        self.waits = np.zeros(POINTS)
        if math.isinf(requests):
            self.waits[:] = math.inf
        elif rate_per_s > 0 and requests > load:
            wait_s = (requests - load) / rate_per_s
            waiting = delay_probability(load, consumers, arrival_scv, topic.service_scv)
            count = max(1, round(POINTS * waiting))
            scv = delay_scv(load / consumers, topic.service_scv)
            parts = gamma_quantiles(round(scv, 3))[(np.arange(count) * POINTS + POINTS // 2) // count]
            self.waits[-count:] = parts * (wait_s * POINTS / parts.sum())
