"""One run of a network in virtual time: advance, observe, change the consumers, continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.models.evaluation import CONSUMERS_MAX
from lavant.models.layout import Floats, Numbers, layout_of
from lavant.models.network import Network
from lavant.simulation.queueing.curves import Curve, constant
from lavant.simulation.queueing.draws import DistributionFamily
from lavant.simulation.queueing.events import DONE, NO_SLOT, advance, begin
from lavant.simulation.queueing.state import JOBS, RECORDS, empty_state, plan_of, with_more_slots

JOBS_MAX = 4_000_000
"""In the network at once; a network too slow for its load would fill all memory."""
_SLOTS_AT_START = 1024
_RECORDS = 65_536


class SimulationCounters(NamedTuple):
    """Sums since the start; the difference of two is an interval."""

    time_s: float
    arrived: Numbers
    """By job type."""
    gap_sums: Floats
    finished: Numbers
    response_sums: Floats
    """Response times and squares of finished jobs, by job type."""
    area: Floats
    """Requests at each topic, integrated over time."""
    busy_s: Floats
    """Consumers in service at each topic, integrated over time."""
    served: Numbers
    service_sums: Floats

    def since(self, earlier: SimulationCounters) -> SimulationCounters:
        """The interval from an earlier moment to this one."""
        pairs: Iterator[tuple[Any, Any]] = zip(self, earlier, strict=True)
        return SimulationCounters(*(now - then for now, then in pairs))


class JobFinished(NamedTuple):
    """Finished jobs, in the order of their end."""

    job: Numbers
    arrival_s: Floats
    response_s: Floats


class NetworkSimulation:
    """A network with its consumers, its arrivals and a seed.

    >>> from lavant.models.network import ModelJobType, Topic
    >>> job = ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.5)
    >>> network = Network(topics=(Topic(name="A", service_rate_per_s=1.0),), jobs=(job,))
    >>> run = NetworkSimulation(network, [1], seed=1)
    >>> run.advance(100_000.0)
    >>> counted = run.counters()
    >>> round(float(counted.area[0] / counted.time_s), 1)  # M/M/1: ρ/(1 − ρ)
    1.0
    """

    def __init__(
        self,
        network: Network,
        consumers: Sequence[int],
        *,
        seed: int,
        curve: Curve | None = None,
        arrivals: DistributionFamily = DistributionFamily.GAMMA,
        services: DistributionFamily = DistributionFamily.GAMMA,
        record: bool = False,
    ) -> None:
        self.network = network
        self._random = np.random.default_rng(seed)
        self._plan = plan_of(
            layout_of(network),
            len(network.jobs),
            constant(network) if curve is None else _fitting(curve, network),
            [job.arrival_scv for job in network.jobs],
            [(topic.service_rate_per_s, topic.service_scv) for topic in network.topics],
            arrivals=arrivals,
            services=services,
        )
        self._state = empty_state(self._plan, slots=_SLOTS_AT_START, records=_RECORDS if record else 0)
        self._records: list[Floats] = []
        self.set_consumers(consumers)
        begin(self._plan, self._state, self._random)

    @property
    def now_s(self) -> float:
        return float(self._state.now_s[0])

    @property
    def jobs(self) -> int:
        """In the network."""
        return int(self._state.counts[JOBS])

    @property
    def requests(self) -> Numbers:
        """At each topic, including those in service."""
        return self._state.there.copy()

    @property
    def consumers(self) -> tuple[int, ...]:
        return tuple(self._state.servers.tolist())

    def set_consumers(self, consumers: Sequence[int]) -> None:
        """From now on; surplus consumers finish their task."""
        if len(consumers) != len(self._state.servers) or not all(0 <= m <= CONSUMERS_MAX for m in consumers):
            raise InvalidValue(
                f"give each of {len(self._state.servers)} topics between 0 and {CONSUMERS_MAX} consumers, "
                f"got {list(consumers)}"
            )
        self._state.servers[:] = consumers

    def advance(self, until_s: float) -> None:
        """Process everything before that time."""
        if not self.now_s <= until_s < np.inf:
            raise InvalidValue(f"time runs forwards: it is {self.now_s} s, and {until_s} s was asked for")
        while True:
            outcome = advance(self._plan, self._state, self._random, until_s)
            if outcome == DONE:
                return
            if outcome == NO_SLOT:
                self._make_room()
            else:
                self._keep_records()

    def counters(self) -> SimulationCounters:
        state = self._state
        passed_s = self.now_s - state.since_s
        return SimulationCounters(
            time_s=self.now_s,
            arrived=state.arrived.copy(),
            gap_sums=state.gap_sums.copy(),
            finished=state.finished.copy(),
            response_sums=state.response_sums.copy(),
            area=state.area + state.there * passed_s,
            busy_s=state.busy_s + state.busy * passed_s,
            served=state.served.copy(),
            service_sums=state.service_sums.copy(),
        )

    def take_finished(self) -> JobFinished:
        """Jobs finished since the last call; needs `record`."""
        self._keep_records()
        rows = np.concatenate([np.empty((0, 3)), *self._records])
        self._records = []
        return JobFinished(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2])

    def _keep_records(self) -> None:
        count = int(self._state.counts[RECORDS])
        if count:
            self._records.append(self._state.records[:count].copy())
            self._state.counts[RECORDS] = 0

    def _make_room(self) -> None:
        if len(self._state.job_type) * 2 > JOBS_MAX:
            raise LimitExceeded(
                f"{self.jobs} jobs are in the network at {self.now_s:g} s, at most {JOBS_MAX} are allowed; give "
                "overloaded topics more consumers, or simulate a shorter time"
            )
        self._state = with_more_slots(self._state)


def _fitting(curve: Curve, network: Network) -> Curve:
    if curve.rates_per_s.shape[1] != len(network.jobs):
        raise InvalidValue(
            f"the curve has rates of {curve.rates_per_s.shape[1]} job types, the network has {len(network.jobs)}"
        )
    return curve
