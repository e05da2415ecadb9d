"""Refinement of a plan: single subscriptions change sides as long as the brokers become more even.

The measure is the sum of the variances of input utilisation, output utilisation and matching delay (as a fraction of
its unit) between the brokers of a session: the squares of what the thesis plots as standard deviations. Each step
takes the one move, from the offloading broker to another or back, that lowers it most.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lavant.control.balancing.estimation import delay_slope_s
from lavant.control.balancing.press import Candidates, Words
from lavant.control.balancing.values import BrokerLoad

STEPS_MAX = 300
CANDIDATES_MAX = 2048
TRIED = 256
"""Of more candidates than the first, so many may change sides."""
LEAST_STEP = 1e-6
"""A step that lowers the sum of variances by less is not worth a move."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Refinement:
    """Brokers by column, the offloading one first; `held[g, b]` subscribers of candidate g are planned for broker b."""

    def __init__(
        self,
        loads: list[BrokerLoad],
        candidates: Candidates,
        vectors: list[Words],
        held: Counts,
        *,
        delay_unit_s: float,
    ) -> None:
        sample = candidates.sample
        self.held = held
        # Candidates come by falling rate: of very many, a few of each rate are enough to refine with.
        count = len(held) if len(held) <= CANDIDATES_MAX else TRIED
        self._tried = np.linspace(0, len(held) - 1, count).astype(np.int64)
        self._rates = candidates.rates_per_s
        self._bits = np.unpackbits(candidates.vectors.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        self._per_bit = sample.input_rate_per_s / sample.publications if sample.publications else 0.0
        each = sample.publication_bytes or loads[0].publication_bytes
        bandwidths = np.array([load.bandwidth_bytes_per_s for load in loads])
        self._output_each = np.where(
            (bandwidths > 0) & np.isfinite(bandwidths), each / np.maximum(bandwidths, 1e-9), 0.0
        )
        self._delay_each = np.array([delay_slope_s(load) for load in loads])
        self._unit_s = delay_unit_s
        self._base = np.unpackbits(np.stack(vectors).view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
        moved = held[:, 1:].sum(axis=0)
        rates_moved = self._rates @ held[:, 1:]
        change = np.concatenate([[-moved.sum()], moved])
        change_out = np.concatenate([[-rates_moved.sum()], rates_moved])
        self._delays = np.maximum(0.0, np.array([load.matching_delay_s for load in loads]) + self._delay_each * change)
        self._outputs = np.array([load.output_utilization for load in loads]) + self._output_each * change_out
        self._outputs = np.where(np.isfinite(self._outputs), self._outputs, 0.0)
        # How many candidates of each broker match each publication.
        self._matching = (held > 0).T.astype(np.int64) @ self._bits.astype(np.int64)
        before = np.array([load.input_rate_per_s for load in loads])
        had = self._bits.any(axis=0)
        has = (self._matching[0] > 0).sum()
        gained = ((self._matching[1:] > 0) & ~self._base[1:]).sum(axis=1)
        self._inputs = before + self._per_bit * np.concatenate([[has - had.sum()], gained])

    def run(self) -> None:
        for _ in range(STEPS_MAX):
            if len(self._tried) == 0 or not self._step():
                return

    @property
    def spread(self) -> float:
        """The sum of variances."""
        columns = (self._inputs * self._delays, self._outputs, self._delays / self._unit_s)
        return float(sum(column.var() for column in columns))

    def _step(self) -> bool:
        present = self.spread
        best: tuple[float, int, int, int] | None = None
        for broker in range(1, self.held.shape[1]):
            for source, target in ((0, broker), (broker, 0)):
                after = self._spread_after(source, target)
                place = int(np.argmin(after))
                if best is None or after[place] < best[0]:
                    best = (float(after[place]), int(self._tried[place]), source, target)
        if best is None or not best[0] < present - LEAST_STEP:
            return False
        self._move(*best[1:])
        return True

    def _changes(self, source: int, target: int, groups: Counts) -> tuple[Floats, Floats]:
        """By candidate, the input that the source loses and that the target gains with one subscriber."""
        alone = np.flatnonzero((self._matching[source] == 1) & ~(self._base[source] if source else np.False_))
        new = np.flatnonzero((self._matching[target] == 0) & ~(self._base[target] if target else np.False_))
        lost = np.where(self.held[groups, source] == 1, self._count(groups, alone), 0)
        gained = np.where(self.held[groups, target] == 0, self._count(groups, new), 0)
        return lost * self._per_bit, gained * self._per_bit

    def _count(self, groups: Counts, bits: Counts) -> Counts:
        """By candidate, how many of some publications it matches: usually of very few."""
        if len(bits) == 0:
            return np.zeros(len(groups), np.int64)
        return np.asarray(self._bits[np.ix_(groups, bits)].sum(axis=1))

    def _spread_after(self, source: int, target: int) -> Floats:
        """By candidate, the sum of variances if one subscriber changes from source to target."""
        lost, gained = self._changes(source, target, self._tried)
        rates = self._rates[self._tried]
        delays = self._delays.copy()
        delays[source] = max(0.0, delays[source] - self._delay_each[source])
        delays[target] += self._delay_each[target]
        count = len(delays)
        inputs = self._inputs * delays
        total, squares = inputs.sum(), (inputs**2).sum()
        at_source = np.maximum(0.0, self._inputs[source] - lost) * delays[source]
        at_target = (self._inputs[target] + gained) * delays[target]
        variance = _variance(
            total - inputs[source] - inputs[target] + at_source + at_target,
            squares - inputs[source] ** 2 - inputs[target] ** 2 + at_source**2 + at_target**2,
            count,
        )
        outputs = self._outputs
        out_source = outputs[source] - rates * self._output_each[source]
        out_target = outputs[target] + rates * self._output_each[target]
        variance += _variance(
            outputs.sum() - outputs[source] - outputs[target] + out_source + out_target,
            (outputs**2).sum() - outputs[source] ** 2 - outputs[target] ** 2 + out_source**2 + out_target**2,
            count,
        )
        variance += (delays / self._unit_s).var()
        return np.where(self.held[self._tried, source] > 0, variance, np.inf)

    def _move(self, group: int, source: int, target: int) -> None:
        lost, gained = self._changes(source, target, np.array([group]))
        self._inputs[source] = max(0.0, self._inputs[source] - lost[0])
        self._inputs[target] += gained[0]
        self._delays[source] = max(0.0, self._delays[source] - self._delay_each[source])
        self._delays[target] += self._delay_each[target]
        rate = self._rates[group]
        self._outputs[source] -= rate * self._output_each[source]
        self._outputs[target] += rate * self._output_each[target]
        self.held[group, source] -= 1
        self.held[group, target] += 1
        if self.held[group, source] == 0:
            self._matching[source] -= self._bits[group]
        if self.held[group, target] == 1:
            self._matching[target] += self._bits[group]


def _variance(total: Floats, squares: Floats, count: int) -> Floats:
    return np.asarray(squares / count - (total / count) ** 2)
