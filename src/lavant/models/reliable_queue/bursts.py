"""Waiting for a consumer where messages are released in order: a message that takes long releases many at once.

Count times from the moment at which a sender takes a message. With Y the time that the sender needs, g the time since
the message before it, s the time between two starts of busy consumers, and R', U', W' of the message before it:

    released after     R = max(Y, R' − g)
    started after      U = max(Y, U' − g + s)        if the consumers were one fast one
    waits otherwise    W = max(0, W' − g + s)        Lindley's recursion, without the order

All three have the form P(X > x) = 1 − F(x)·(1 − P(X' − g + s > x)), an affine map of the tail, whose fixed point is
found on a grid. Several consumers start several messages of a burst at once, so U and W count from an allowance a on:

    wait of a message = wait at GI/G/m + E[max(R, U − a)] − E[R] − E[max(0, W − a)]

R and U are large together, so the same part of the messages is taken to have the largest of both. With one consumer,
Poisson arrivals and a sender for every message, that is exact. Otherwise:

* Of n₁ senders, fewer are busy with older messages than the load λ/μ₁: only a share θ of the messages delays others.
* a = S₂ · 0.515 · (1 + 0.43·c₂²) · (1 − 1/n₂)^1.7 · ((1 − ρ₂)·n₂)^−0.15, and s = S₂/n₂. The four constants
  (`BurstFit`) were fitted to 420 simulations; `tests/models/in_order_fit.py` fits them again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lavant.models.layout import Floats
from lavant.models.reliable_queue import grids, lindley
from lavant.models.reliable_queue.scenario import ServiceFamily, ServiceTime

_BEYOND = 2e-5
_MESSAGES_IN_SERVICE = 64.0
"""Of more, several are taken as one."""


class BurstFit(NamedTuple):
    """The constants that were fitted to simulations, in the order of the formulas above."""

    allowance: float = 0.515
    service_scv: float = 0.43
    several: float = 1.7
    room: float = -0.15


FITTED = BurstFit()


@lru_cache(maxsize=64)  # a plan asks for many timeouts, and most of them do not change the bursts
def longer_wait_s(
    *,
    rate_per_s: float,
    arrival_scv: float,
    sender: ServiceTime,
    delaying: float,
    consumer: ServiceTime,
    consumers: int,
    fit: BurstFit = FITTED,
) -> float:
    """By how much a message waits longer for a consumer than if its order did not matter.

    `delaying` is θ, the share of the messages that can delay others. `consumer` is the service of a message in all its
    attempts.
    """
    if delaying <= 0:
        return 0.0
    in_service = rate_per_s * sender.mean_s
    together = _taken_as_one(in_service)
    gap = ServiceTime(mean_s=together / rate_per_s, scv=arrival_scv / together)
    start_s = consumer.mean_s / consumers
    family = consumer.family if together == 1 else ServiceFamily.GAMMA
    start = ServiceTime(mean_s=together * start_s, scv=consumer.scv / together, family=family)
    busy = rate_per_s * start_s
    wait_s = 0.5 * (consumer.scv + arrival_scv) * busy * start_s / (1.0 - busy) + start_s
    step_s = (1.6 * _longest_s(sender, _BEYOND / (1.0 + in_service)) + 14.0 * wait_s) / lindley.POINTS
    at_s = np.asarray(step_s * np.arange(lindley.POINTS), np.float64)
    sent = _sent_cdf(sender, delaying, at_s) ** together

    past = np.conj(np.fft.rfft(lindley.masses(gap, step_s), lindley.CIRCLE))
    ahead = past * np.fft.rfft(lindley.masses(start, step_s), lindley.CIRCLE)
    released = _released(sent, past, step_s / gap.mean_s)
    waiting = lindley.fixed_point(np.ones(lindley.POINTS), ahead, busy * np.exp(-at_s * busy / wait_s))
    started = lindley.fixed_point(sent, ahead, 1.0 - (1.0 - released) * (1.0 - waiting))

    room = (1.0 - 1.0 / consumers) ** fit.several * ((1.0 - busy) * consumers) ** fit.room
    allowance_s = fit.allowance * (1.0 + fit.service_scv * consumer.scv) * room * consumer.mean_s
    started = np.interp(at_s + allowance_s, at_s, started, right=0.0)
    waiting = np.interp(at_s + allowance_s, at_s, waiting, right=0.0)
    longer = np.maximum(released, started) - released - waiting
    return max(0.0, step_s * (float(longer.sum()) - 0.5 * float(longer[0])))


@lru_cache(maxsize=64)
def later_release_s(*, rate_per_s: float, arrival_scv: float, sender: ServiceTime, delaying: float) -> float:
    """By how much later a message is released than after Poisson arrivals, if it finds a sender free.

    Regular messages seldom find an older one in service, and bursts often. R of the docstring above, both ways.
    """
    if arrival_scv == 1 or delaying <= 0:
        return 0.0
    in_service = rate_per_s * sender.mean_s
    together = _taken_as_one(in_service)
    step_s = 1.6 * _longest_s(sender, _BEYOND / (1.0 + in_service)) / lindley.POINTS
    at_s = np.asarray(step_s * np.arange(lindley.POINTS), np.float64)
    sent = _sent_cdf(sender, delaying, at_s) ** together

    def mean_s(scv: float) -> float:
        gap = ServiceTime(mean_s=together / rate_per_s, scv=scv / together)
        past = np.conj(np.fft.rfft(lindley.masses(gap, step_s), lindley.CIRCLE))
        tails = _released(sent, past, step_s / gap.mean_s)
        return step_s * (float(tails.sum()) - 0.5 * float(tails[0]))

    return mean_s(arrival_scv) - mean_s(1.0)


def _taken_as_one(in_service: float) -> float:
    return float(max(1.0, np.ceil(in_service / _MESSAGES_IN_SERVICE)))


def _sent_cdf(sender: ServiceTime, delaying: float, at_s: Floats) -> Floats:
    """The time with a sender, in which only a share of the messages can delay others."""
    return np.asarray(delaying * grids.service_cdf(sender, at_s) + (1.0 - delaying) * (at_s >= sender.mean_s))


def _released(sent: Floats, past: np.ndarray[tuple[int], np.dtype[np.complex128]], steps_per_gap: float) -> Floats:
    """The tails of R = max(Y, R' − g); the first guess is exact for Poisson arrivals."""
    later = np.cumsum((1.0 - sent)[::-1])[::-1] * steps_per_gap
    return lindley.fixed_point(sent, past, 1.0 - sent * np.exp(-later))


def _longest_s(service: ServiceTime, share: float) -> float:
    """A time that no more than this share of the services exceeds."""
    at_s = np.asarray(service.mean_s * 1.3 ** np.arange(60), np.float64)
    return float(at_s[np.argmin(1.0 - grids.service_cdf(service, at_s) > share)])
