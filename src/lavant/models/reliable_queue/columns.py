"""Equations 1 to 8 of the reliable-queue paper for many cases at once, and their extension to general times.

    Λ₁ = λ        Λ₂ = a·λ        ρ_i = Λ_i / (n_i·μ_i)                          (Eqs. 1 to 3; a = 1/q)
    L  = Σ_i (n_i·ρ_i + waiting at an M/M/n_i station)                           (Eqs. 4 to 7)
    W  = L / λ                                                                   (Eq. 8)

The third denominator of Eq. 8 as printed has p where (1 − p) belongs; L/λ gives that. `attempts` is a, the mean number
of times that a message is received: 1/q where the timeout is longer than every service, more where it is not.

With other variabilities than 1, stations are GI/G/m as in the network models, and repeated messages vary like a Poisson
stream. Arrivals of the second phase vary like departures of the first over short times, and like arrivals of the first
over long ones. The more slowly a queue changes, τ = (ca₁² + cs²)/(2·n·μ·(1 − ρ)²), the longer are the times that matter
to it:

    ca₂² = ω·ca₁² + (1 − ω)·cd₁²                      ω = τ₂/(τ₂ + 4·τ₁)
    cd₁² = 1 + (1 − ρ²)·(ca₁² − 1) + ρ²·k·(cs₁² − 1)  k = 1/√n₁                 (allocation paper, Eq. 5)

Several regular senders (cs₁² < 1) side by side depart irregularly during one service, and as regularly as a single fast
one over longer times: there, k = 1/√n₁ + υ·(1 − 1/√n₁) with υ = τ₂/(τ₂ + 2/μ₁). The 4 and the 2 fit simulations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lavant.core.errors import InvalidValue
from lavant.core.kernels.kernels import kernel
from lavant.models.decomposition import requests
from lavant.models.layout import Floats


class QueueColumns(NamedTuple):
    """One value for each case; infinite where a phase is not stable."""

    utilisation: tuple[Floats, Floats]
    """ρ of senders and consumers."""
    waiting: tuple[Floats, Floats]
    """Messages that wait for a sender, and for a consumer."""
    arrival_scv: tuple[Floats, Floats]
    requests: Floats
    """L: messages in both phases, waiting or in service."""
    sojourn_s: Floats
    """W: time in both phases, over all attempts."""


def evaluate(
    *,
    arrival_rate_per_s: ArrayLike,
    senders: ArrayLike,
    sender_s: ArrayLike,
    consumers: ArrayLike,
    consumer_s: ArrayLike,
    attempts: ArrayLike = 1.0,
    arrival_scv: ArrayLike = 1.0,
    sender_scv: ArrayLike = 1.0,
    consumer_scv: ArrayLike = 1.0,
) -> QueueColumns:
    """Both phases, for arrays that are broadcast against each other. A `sender_s` of 0 leaves out the first phase.

    >>> found = evaluate(arrival_rate_per_s=30.3, senders=[4, 5, 6, 7], sender_s=0.1, consumers=[4, 5, 6, 7],
    ...                  consumer_s=0.1, attempts=1 / 0.99)
    >>> found.sojourn_s.round(5).tolist()
    [0.31238, 0.22647, 0.20816, 0.20306]
    """
    figures = (
        arrival_rate_per_s,
        arrival_scv,
        senders,
        sender_s,
        sender_scv,
        consumers,
        consumer_s,
        consumer_scv,
        attempts,
    )
    arrays = np.broadcast_arrays(*np.atleast_1d(*(np.asarray(figure, np.float64) for figure in figures)))
    cases = np.ascontiguousarray(np.stack([array.ravel() for array in arrays], axis=1))
    if not np.isfinite(cases).all() or (cases < 0).any() or (cases[:, [0, 2, 5, 6]] <= 0).any():
        raise InvalidValue(
            "rates, times, numbers of threads and variabilities must be numbers from 0 on, and the arrival rate, the "
            "threads and the time of a consumer above 0"
        )
    found = np.empty((6, len(cases)))
    _evaluate(cases, found)
    shaped = [row.reshape(arrays[0].shape) for row in found]
    rate = arrays[0]
    requests_ = rate * arrays[3] + shaped[2] + rate * arrays[8] * arrays[6] + shaped[3]
    return QueueColumns(
        utilisation=(shaped[0], shaped[1]),
        waiting=(shaped[2], shaped[3]),
        arrival_scv=(shaped[4], shaped[5]),
        requests=requests_,
        sojourn_s=requests_ / rate,
    )


@kernel
def change_s(arrival_scv: float, service_scv: float, service_s: float, servers: float, load: float) -> float:
    """τ: how slowly the queue of a station changes; very slowly if it is not stable."""
    free = max(1e-9, 1.0 - load / servers)
    return (arrival_scv + service_scv) * service_s / (2.0 * servers * free**2)


@kernel
def _evaluate(cases: Floats, found: Floats) -> None:
    for row in range(cases.shape[0]):
        rate, arrival_scv, senders, sender_s, sender_scv = cases[row, :5]
        consumers, consumer_s, consumer_scv, attempts = cases[row, 5:]
        first = rate * sender_s
        second = rate * attempts * consumer_s
        found[0, row], found[1, row] = first / senders, second / consumers
        found[2, row] = requests(first, int(senders), arrival_scv, sender_scv, True) - first if first > 0.0 else 0.0
        change_1 = change_s(arrival_scv, sender_scv, sender_s, senders, first)
        change_2 = change_s(arrival_scv, consumer_scv, consumer_s, consumers, second)
        busy = min(1.0, first / senders) ** 2
        share = 1.0 / np.sqrt(senders)
        if sender_scv < 1.0 and change_2 > 0.0:
            share += (1.0 - share) / (1.0 + 2.0 * sender_s / change_2)
        departing = 1.0 + (1.0 - busy) * (arrival_scv - 1.0) + busy * share * (sender_scv - 1.0)
        if change_2 > 0.0:
            departing += (arrival_scv - departing) / (1.0 + 4.0 * change_1 / change_2)
        found[4, row] = arrival_scv
        found[5, row] = departing / attempts + (1.0 - 1.0 / attempts)
        found[3, row] = requests(second, int(consumers), found[5, row], consumer_scv, True) - second
