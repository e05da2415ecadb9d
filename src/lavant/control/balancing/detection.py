"""Detection: is a broker overloaded, is its load stable, and how far is it from that of another one (Section 3.3.2).

Overload looks at four utilisations. From `overload_low` on a broker accepts nothing, from `overload_high` on it
offloads; between them it does neither (Figure 3.4). The CPU of a broker that works off a backlog is at 100 % even if
its load is low. It counts as overloaded then, so that nobody gives it more, but offloads nothing for that: the
backlog drains by itself, and the thesis's broker gave away all of its subscribers meanwhile.
"""

from __future__ import annotations

import zlib
from collections import deque

import msgspec

from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.values import BrokerLoad, LoadIndex

SMOOTHED = ("input_rate_per_s", "matching_delay_s", "output_bytes_per_s", "cpu")


def smooth(previous: BrokerLoad | None, current: BrokerLoad, alpha: float) -> BrokerLoad:
    """y_n = α·x + (1 - α)·y_(n-1) (3.4), for each rate and delay; counts and capacities are the current ones."""
    if previous is None:
        return current
    values = {name: alpha * getattr(current, name) + (1 - alpha) * getattr(previous, name) for name in SMOOTHED}
    return msgspec.structs.replace(current, **values)


class Overload(msgspec.Struct, frozen=True):
    """The resource to relieve first, and its utilisation."""

    resource: str
    utilization: float

    @property
    def index(self) -> LoadIndex:
        return {"input": LoadIndex.INPUT, "output": LoadIndex.OUTPUT}.get(self.resource, LoadIndex.MATCH)


def overload(load: BrokerLoad, threshold: float) -> Overload | None:
    """The most utilised resource at or above a threshold; input first, since relieving it relieves the others."""
    resources = {
        "input": load.input_utilization,
        "output": load.output_utilization,
        "memory": load.memory_utilization,
    }
    over = {name: value for name, value in resources.items() if value >= threshold}
    if not over:
        return None
    name = "input" if "input" in over else max(sorted(over), key=over.__getitem__)
    return Overload(name, over[name])


def is_available(load: BrokerLoad, config: BalancingConfig) -> bool:
    """Whether a broker may accept load: nothing at the lower threshold, and no backlog that keeps its CPU busy."""
    return overload(load, config.overload_low) is None and not (load.cpu >= config.overload_low and load.backlog > 0)


def differences(ours: BrokerLoad, theirs: BrokerLoad, delay_unit_s: float) -> dict[LoadIndex, float]:
    """By index, how much higher ours is; delays as fractions of `delay_unit_s` (3.5)."""
    return {
        LoadIndex.INPUT: ours.input_utilization - theirs.input_utilization,
        LoadIndex.OUTPUT: ours.output_utilization - theirs.output_utilization,
        LoadIndex.MATCH: (ours.matching_delay_s - theirs.matching_delay_s) / delay_unit_s,
    }


class Thresholds(msgspec.Struct, frozen=True):
    """Differences that trigger a session: between ratios, and between delays."""

    ratio: float
    delay: float
    delay_unit_s: float
    tolerance: float

    @classmethod
    def of(cls, config: BalancingConfig, *, is_global: bool = False) -> Thresholds:
        ratio, delay = config.ratio_threshold, config.delay_threshold
        if is_global:
            ratio, delay = config.cluster_ratio_threshold, config.cluster_delay_threshold
        return cls(ratio, delay, config.delay_unit_s, config.tolerance)

    def exceeded(self, ours: BrokerLoad, theirs: BrokerLoad) -> dict[LoadIndex, float]:
        """The differences beyond their threshold, as they are."""
        found = differences(ours, theirs, self.delay_unit_s)
        return {index: value for index, value in found.items() if value > self._of(index) + self.tolerance}

    def are_balanced(self, one: BrokerLoad, other: BrokerLoad) -> bool:
        """Whether neither broker would offload to the other."""
        return not self.exceeded(one, other) and not self.exceeded(other, one)

    def _of(self, index: LoadIndex) -> float:
        return self.delay if index is LoadIndex.MATCH else self.ratio


class Stability:
    """Whether the three indices have changed by less than a fraction within a window (Section 3.3.2.1), and so has the
    number of subscriptions: while subscribers join, indices rise slowly and are noisy.
    """

    def __init__(self, config: BalancingConfig) -> None:
        self._config = config
        self._loads: deque[tuple[int, tuple[float, float, float], int]] = deque()

    def observe(self, load: BrokerLoad, now_ms: int) -> None:
        indices = (load.input_utilization, load.output_utilization, load.matching_delay_s / self._config.delay_unit_s)
        self._loads.append((now_ms, indices, load.subscriptions))
        while self._loads and self._loads[0][0] < now_ms - self._config.stable_window_ms:
            self._loads.popleft()

    def is_stable(self, *, since_ms: int, now_ms: int) -> bool:
        """`since_ms` is the end of the last session or overload; a load that never settles is stable in the end."""
        waited = now_ms - since_ms
        if waited < self._config.stable_ms:
            return False
        if waited >= self._config.stable_ms_max:
            return True
        loads = [(indices, count) for time_ms, indices, count in self._loads if time_ms >= since_ms]
        if not loads or waited < self._config.stable_window_ms:
            return False
        spread = [max(values) - min(values) for values in zip(*(indices for indices, _ in loads), strict=True)]
        counts = [count for _, count in loads]
        change = self._config.stable_change
        return bool(max(spread) <= change and max(counts) - min(counts) <= change * max(counts))


def jitter_ms(broker: str, count: int, low_ms: int, high_ms: int) -> int:
    """A pause between two bounds that differs by broker and by turn, and repeats in every run."""
    return low_ms + zlib.crc32(f"{broker}/{count}".encode()) % (high_ms - low_ms + 1)
