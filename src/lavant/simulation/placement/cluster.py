"""A cluster like that of e-StreamHub, Section VI: hosts, slices, and the costs of publications and moves.

8 AP, 16 M and 8 EP slices; hosts of 8 cores. AP and EP together need as much CPU as M (Section VI-C gives M twice the
hosts of each of the others), and 15 hosts are at the target of 50 % at 350 publications a second (Section VI-E). Slices
of one operator differ a little, since hashing is not even, and their needs fluctuate.

Table I has the duration of moves: 232 ms for AP, 275 ms for EP, 1497 ms for M with 12,500 subscriptions. A move is
eight messages until the slice runs at its destination, so each takes 29 ms here; the rest is the copy of the state.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.slices.layout import SliceLayout
from lavant.core.errors import InvalidValue
from lavant.core.ids import SliceId

Doubles = NDArray[np.float64]


class SliceOperator(msgspec.Struct, frozen=True, kw_only=True):
    """Slices of one kind, their share of all CPU, and the state of each."""

    name: str
    slices: int
    cpu_part: float
    state_bytes: int


ACCESS = SliceOperator(name="AP", slices=8, cpu_part=0.25, state_bytes=0)
MATCH = SliceOperator(name="M", slices=16, cpu_part=0.50, state_bytes=126_500_000)
EXIT = SliceOperator(name="EP", slices=8, cpu_part=0.25, state_bytes=4_300_000)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and speeds. `hosts_at_peak` hosts run at the target of 50 % at `peak_per_s` publications a second."""

    access: SliceOperator = ACCESS
    match: SliceOperator = MATCH
    exit: SliceOperator = EXIT
    peak_per_s: float = 350.0
    hosts_at_peak: float = 15.0
    cores: int = 8
    idle_cpu: float = 0.002
    """Of each slice, in hosts."""
    skew: float = 0.15
    noise: float = 0.06
    noise_s: float = 20.0
    network_bytes_per_publication: float = 2_000.0
    hop_ms: float = 1.0
    """Between two slices."""
    message_ms: int = 29
    """Between manager and hosts."""
    copy_bytes_per_s: float = 100e6
    """Of state, from one host."""
    host_start_ms: int = 10_000
    probe_ms: int = 5_000

    def __post_init__(self) -> None:
        for name in ("peak_per_s", "hosts_at_peak", "cores", "message_ms", "copy_bytes_per_s", "probe_ms"):
            if not getattr(self, name) > 0:
                raise InvalidValue(f"cluster {name} must be positive, got {getattr(self, name)}")

    @property
    def operators(self) -> tuple[SliceOperator, SliceOperator, SliceOperator]:
        return self.access, self.match, self.exit

    @property
    def layout(self) -> SliceLayout:
        return SliceLayout(access=self.access.slices, match=self.match.slices, exit=self.exit.slices)


class Costs:
    """Costs of tasks of each slice, in the order of the layout's slices; they fluctuate over time."""

    def __init__(self, config: ClusterConfig, seed: int) -> None:
        self._config = config
        self._random = np.random.default_rng([seed, 2])
        self.operators = [operator for operator in config.operators for _ in range(operator.slices)]
        self._mean_s = self._means()
        self._fluctuation = np.zeros(len(self.operators))

    def _means(self) -> Doubles:
        """An AP or EP slice gets its share of the publications, an M slice all."""
        config = self._config
        core_s = 0.5 * config.hosts_at_peak * config.cores / config.peak_per_s
        parts = np.array([operator.cpu_part / operator.slices for operator in self.operators])
        uneven = parts * np.exp(config.skew * self._random.standard_normal(len(parts)))
        shares = np.array([1.0 if operator is config.match else 1.0 / operator.slices for operator in self.operators])
        return np.asarray(core_s * uneven / uneven.sum() / shares, dtype=np.float64)

    def next_s(self) -> Doubles:
        """Core seconds of a task of each slice during the next probe interval."""
        config = self._config
        keep = np.exp(-config.probe_ms / 1000.0 / config.noise_s)
        fresh = config.noise * np.sqrt(1.0 - keep**2) * self._random.standard_normal(len(self.operators))
        self._fluctuation = keep * self._fluctuation + fresh
        return np.asarray(self._mean_s * np.maximum(0.1, 1.0 + self._fluctuation), dtype=np.float64)


def state_bytes(config: ClusterConfig, slice: SliceId) -> int:
    """The state that a move of this slice copies."""
    return next(operator.state_bytes for operator in config.operators if slice.startswith(f"{operator.name}:"))
