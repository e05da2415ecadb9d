"""A cluster of hosts and slices in virtual time, just detailed enough to judge placement policies.

After e-StreamHub, Section VI: 8 AP, 16 M and 8 EP slices. AP and EP together need as much CPU as M (Section VI-C gives
M twice the hosts of each of the others). A slice's CPU is proportional to the publication rate: M matches each
publication, EP sends a fixed number of notifications for each. Slices of one operator differ a little (hashing is not
even), and all fluctuate. A move takes a fixed time and one by its state, like those in Table I; a new host takes a
while to start.

Not modelled: queues. A host that is offered more than it has reports 100 %, and the excess is gone rather than late;
the *offered* load is what the results show.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.control.placement.values import HostProbe, Placement, Probes, SliceProbe
from lavant.core.ids import HostId, SliceId

Loads = NDArray[np.float64]


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Slices of one kind, their part of all CPU, and the state of each."""

    name: str
    slices: int
    cpu_part: float
    state_bytes: int


ACCESS = Operator(name="AP", slices=8, cpu_part=0.25, state_bytes=1_000_000)
MATCH = Operator(name="M", slices=16, cpu_part=0.50, state_bytes=128_000_000)
EXIT = Operator(name="EP", slices=8, cpu_part=0.25, state_bytes=8_000_000)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and speeds. `hosts_at_peak` hosts run at the target of 50 % at `peak_per_s` publications a second."""

    operators: tuple[Operator, ...] = (ACCESS, MATCH, EXIT)
    peak_per_s: float = 350.0
    hosts_at_peak: float = 15.0
    idle_cpu: float = 0.002
    skew: float = 0.15
    noise: float = 0.06
    noise_s: float = 20.0
    network_bytes_per_publication: float = 2_000.0
    host_start_ms: int = 10_000
    move_ms: int = 230
    move_bytes_per_s: float = 100e6
    probe_ms: int = 5_000
    step_ms: int = 250


class Slices:
    """What each slice needs over time; column i is slice `ids[i]`."""

    def __init__(self, config: ClusterConfig, seed: int) -> None:
        self._config = config
        self._random = np.random.default_rng([seed, 2])
        self.operators = [operator for operator in config.operators for _ in range(operator.slices)]
        self.ids = [SliceId(f"{op.name}:{n:02d}") for op in config.operators for n in range(1, op.slices + 1)]
        self.state_bytes = [operator.state_bytes for operator in self.operators]
        self.cpu_per_publication = self._weights()
        self._fluctuation = np.zeros(len(self.ids))

    def _weights(self) -> Loads:
        config = self._config
        total = 0.5 * config.hosts_at_peak / config.peak_per_s
        even = np.array([total * operator.cpu_part / operator.slices for operator in self.operators])
        uneven = even * np.exp(config.skew * self._random.standard_normal(len(even)))
        return np.asarray(uneven * total / uneven.sum(), dtype=np.float64)

    def step(self, rate_per_s: float) -> Loads:
        """The CPU that each slice needs in the next step, in hosts."""
        config = self._config
        keep = np.exp(-config.step_ms / 1000.0 / config.noise_s)
        fresh = config.noise * np.sqrt(1.0 - keep**2) * self._random.standard_normal(len(self.ids))
        self._fluctuation = keep * self._fluctuation + fresh
        needed = rate_per_s * self.cpu_per_publication * np.maximum(0.0, 1.0 + self._fluctuation)
        return np.asarray(config.idle_cpu + needed, dtype=np.float64)

    def move_ms(self, slice_id: SliceId) -> int:
        state = self.state_bytes[self.ids.index(slice_id)]
        return self._config.move_ms + round(1000 * state / self._config.move_bytes_per_s)

    def probe(self, index: int, cpu: float, rate_per_s: float) -> SliceProbe:
        return SliceProbe(
            id=self.ids[index],
            operator=self.operators[index].name,
            cpu=float(cpu),
            memory_bytes=self.state_bytes[index],
            network_bytes_per_s=rate_per_s * self._config.network_bytes_per_publication,
        )


def host_loads(placement: Placement, slices: Slices, cpu: Loads) -> dict[HostId, float]:
    """What each host with slices is offered."""
    column = {slice_id: index for index, slice_id in enumerate(slices.ids)}
    return {host: float(sum(cpu[column[s]] for s in held)) for host, held in placement.by_host if held}


def probes_of(placement: Placement, slices: Slices, cpu: Loads, rate_per_s: float) -> Probes:
    """What the hosts report: no more than they have, shared out among their slices."""
    column = {slice_id: index for index, slice_id in enumerate(slices.ids)}
    hosts = []
    for host, held in placement.by_host:
        indexes = [column[slice_id] for slice_id in held]
        served = min(1.0, 1.0 / max(1e-12, float(sum(cpu[i] for i in indexes))))
        hosts.append(HostProbe(id=host, slices=tuple(slices.probe(i, cpu[i] * served, rate_per_s) for i in indexes)))
    return Probes(hosts=tuple(hosts))
