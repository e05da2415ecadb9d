"""What a trace shows: when it was balanced, deviations, estimation errors, overhead, and the least number of moves."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from lavant.control.balancing.config import BalancingConfig
from lavant.simulation.balancing.brokers import DELAY_S_MHZ, SYSTEM_SUBSCRIPTIONS
from lavant.simulation.balancing.experiment import EVERY_S, BalancingTrace

SMOOTH_ROWS = 6
"""Differences are taken between means over a minute: single seconds with many publishers are noise."""

EXCURSIONS_MAX = 0.05

THRESHOLDS = BalancingConfig()
Floats = npt.NDArray[np.float64]


def balanced_s(trace: BalancingTrace, *, begin_s: float, end_s: float) -> float | None:
    """The time from which on no two brokers differ by more than the thresholds in input and matching delay, with
    nothing overloaded, for 95 % of the time until `end_s` and for the first minute; None if there is no such time.
    Output is balanced as far as possible only, and the sessions for it disturb the input for a while.

    With clusters, brokers of one cluster are compared, and the means of neighbouring clusters with the global
    thresholds.
    """
    rows = np.flatnonzero((trace.time_s > begin_s) & (trace.time_s <= end_s))
    is_bad = _excess(trace)[rows] > 0
    left = np.arange(len(rows), 0, -1)
    is_mostly_good = np.cumsum(is_bad[::-1])[::-1] <= EXCURSIONS_MAX * left
    lasts = np.convolve(is_bad, np.ones(SMOOTH_ROWS), "full")[SMOOTH_ROWS - 1 :] == 0
    found = np.flatnonzero(is_mostly_good & lasts)
    if len(found) == 0:
        return None
    return begin_s if found[0] == 0 else float(trace.time_s[rows[found[0]]])


def _excess(trace: BalancingTrace) -> Floats:
    """By row, how far the largest difference is beyond its threshold. A broker may report a load that has changed by
    less than `report_ratio_threshold` since, so as much is forgiven.
    """
    input_ratio, delay = smoothed(trace.input), trace.delay_s / THRESHOLDS.delay_unit_s
    clusters: dict[str, list[int]] = {}
    for column, spec in enumerate(trace.experiment.brokers):
        clusters.setdefault(spec.cluster, []).append(column)
    excess = input_ratio.max(axis=1) - THRESHOLDS.overload_low
    for columns in clusters.values():
        excess = np.maximum(excess, _range(input_ratio[:, columns]) - THRESHOLDS.ratio_threshold)
        excess = np.maximum(excess, _range(delay[:, columns]) - THRESHOLDS.delay_threshold)
    for head, neighbours in trace.experiment.neighbours.items():
        for other in neighbours:
            for values in (input_ratio, delay):
                apart = values[:, clusters[head]].mean(axis=1) - values[:, clusters[other]].mean(axis=1)
                excess = np.maximum(excess, np.abs(apart) - THRESHOLDS.cluster_ratio_threshold)
    return np.asarray(excess - THRESHOLDS.report_ratio_threshold)


def smoothed(values: Floats) -> Floats:
    """Means over the last rows."""
    padded = np.concatenate([np.repeat(values[:1], SMOOTH_ROWS - 1, axis=0), values])
    sums = np.cumsum(padded, axis=0)
    sums[SMOOTH_ROWS:] = sums[SMOOTH_ROWS:] - sums[:-SMOOTH_ROWS]
    return np.asarray(sums[SMOOTH_ROWS - 1 :] / SMOOTH_ROWS)


def _range(values: Floats) -> Floats:
    return np.asarray(values.max(axis=1) - values.min(axis=1))


def deviation(values: Floats) -> Floats:
    """By row, the standard deviation between brokers."""
    return np.asarray(values.std(axis=1))


def between(trace: BalancingTrace, values: Floats, begin_s: float, end_s: float) -> Floats:
    """The rows of a time interval."""
    return np.asarray(values[(trace.time_s > begin_s) & (trace.time_s <= end_s)])


def overhead(trace: BalancingTrace, window_s: int = 100, *, is_of_brokers: bool = False) -> Floats:
    """Control messages as a fraction of all messages, or of those that brokers received, over the last `window_s`
    seconds.
    """
    rows = window_s // EVERY_S
    messages = trace.messages - trace.deliveries if is_of_brokers else trace.messages
    control, total = (_within(counts, rows) for counts in (trace.control_messages, messages))
    return np.asarray(control / np.maximum(total, 1))


def _within(counts: npt.NDArray[np.int64], rows: int) -> Floats:
    before = np.concatenate([np.zeros(rows, np.int64), counts])[: len(counts)]
    return np.asarray(counts - before, np.float64)


class EstimationError(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted and a measured index of a broker after a session."""

    index: str
    role: str
    """offloading or accepting"""
    predicted: float
    measured: float
    time_s: float


def estimation_errors(trace: BalancingTrace) -> list[EstimationError]:
    """Every prediction whose outcome was measured. What B1 predicts for itself while subscribers join is left out."""
    found: list[EstimationError] = []
    for decision in trace.decisions:
        time_s = decision.decision.time_ms / 1000
        is_joining = time_s < trace.experiment.joins_s[1]
        for broker, measured in decision.measured.items():
            role = "offloading" if broker == decision.offloading else "accepting"
            if is_joining and broker == trace.experiment.joins_at:
                continue
            predicted = decision.predicted[broker]
            found.extend(
                EstimationError(
                    index=index,
                    role=role,
                    predicted=getattr(predicted, index),
                    measured=getattr(measured, index),
                    time_s=time_s,
                )
                for index in ("input_utilization", "output_utilization", "matching_delay_s")
            )
    return found


def mean_error(trace: BalancingTrace, index: str) -> float:
    """The mean difference between what was predicted and measured, sign included, relative to the mean that was
    measured.
    """
    errors = [each for each in estimation_errors(trace) if each.index == index]
    measured = math.fsum(each.measured for each in errors)
    return math.fsum(each.predicted - each.measured for each in errors) / measured if measured > 0 else math.nan


def sessions(trace: BalancingTrace) -> list[float]:
    """The times of sessions that moved something."""
    return [each.decision.time_ms / 1000 for each in trace.decisions if each.moves and not each.measured]


def least_moves(trace: BalancingTrace) -> int:
    """The moves that somebody who knows everything needs, for brokers that end within the thresholds.

    All subscribers start at one broker. It may keep most if its delay is above that of all others by as much as the
    thresholds allow: for delays, or for inputs at the highest input rate at the end.
    """
    experiment = trace.experiment
    cpu = np.array([spec.cpu_mhz for spec in experiment.brokers])
    own = cpu[[spec.name == experiment.joins_at for spec in experiment.brokers]][0]
    rate = float((trace.input[-1] / trace.delay_s[-1]).max())
    apart_s = min(THRESHOLDS.delay_threshold * THRESHOLDS.delay_unit_s, THRESHOLDS.ratio_threshold / rate)
    total = experiment.subscribers + SYSTEM_SUBSCRIPTIONS * len(cpu)
    others_s = (total * DELAY_S_MHZ - apart_s * own) / cpu.sum()
    kept = (others_s + apart_s) * own / DELAY_S_MHZ - SYSTEM_SUBSCRIPTIONS
    return math.ceil(experiment.subscribers - float(kept))
