"""Arrival rates over time: constant between steps, the last one forever."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from lavant.core.errors import InvalidValue
from lavant.models.layout import Floats
from lavant.models.network import Network


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """`rates_per_s[k, i]` holds for job type i until `ends_s[k]`, the last row from then on."""

    ends_s: Floats
    rates_per_s: Floats

    def __post_init__(self) -> None:
        if self.rates_per_s.ndim != 2 or len(self.ends_s) != len(self.rates_per_s) or not len(self.ends_s):
            raise InvalidValue(f"a curve has a row of rates for each end, got {self.rates_per_s.shape}")
        if not (np.isfinite(self.rates_per_s).all() and (self.rates_per_s >= 0).all()):
            raise InvalidValue("rates of a curve must be numbers from 0 on")
        if not (np.diff(self.ends_s) > 0).all():
            raise InvalidValue("the ends of a curve's steps must rise")

    def at(self, time_s: float) -> Floats:
        """The rates of all job types at a time."""
        step = min(int(np.searchsorted(self.ends_s, time_s, side="right")), len(self.ends_s) - 1)
        return np.asarray(self.rates_per_s[step])


def constant(network: Network) -> Curve:
    """The rates of the network."""
    rates = [[job.arrival_rate_per_s for job in network.jobs]]
    return Curve(ends_s=np.array([np.inf]), rates_per_s=np.array(rates))


def steps(ends_s: Sequence[float], rates_per_s: ArrayLike) -> Curve:
    """Explicit rates.

    >>> steps([60.0, 120.0], [[1.0], [3.0]]).at(60.0).tolist()
    [3.0]
    """
    return Curve(ends_s=np.array(ends_s, np.float64), rates_per_s=np.array(rates_per_s, np.float64))
