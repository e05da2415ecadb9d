"""Random times with mean 1, from a family of distributions and a squared coefficient of variation."""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from lavant.core.errors import InvalidValue
from lavant.core.kernels.kernels import inlined_kernel
from lavant.models.layout import Floats

_CONSTANT, _EXPONENTIAL, _GAMMA, _LOGNORMAL, _HYPEREXPONENTIAL = range(5)


class DistributionFamily(StrEnum):
    """The distribution with the two moments. A variability of 0 is a constant in every family."""

    GAMMA = "gamma"
    LOGNORMAL = "lognormal"
    HYPEREXPONENTIAL = "hyperexponential"
    """Two exponentials with balanced means; for variabilities from 1 on."""


def parameters(family: DistributionFamily, scvs: list[float]) -> Floats:
    """The parameters of `draw`, a row for each variability: the kind, and two figures.

    >>> parameters(DistributionFamily.GAMMA, [0.0, 1.0, 0.5]).tolist()
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 2.0, 0.5]]
    """
    return np.array([_parameters(family, scv) for scv in scvs])


def _parameters(family: DistributionFamily, scv: float) -> tuple[float, float, float]:
    if scv == 0:
        return _CONSTANT, 0.0, 0.0
    if family is DistributionFamily.LOGNORMAL:
        variance = math.log1p(scv)
        return _LOGNORMAL, -variance / 2, math.sqrt(variance)
    if scv == 1:
        return _EXPONENTIAL, 0.0, 0.0
    if family is DistributionFamily.GAMMA:
        return _GAMMA, 1.0 / scv, scv
    if scv < 1:
        raise InvalidValue(f"a hyperexponential time has a variability of 1 or more, got {scv}; take gamma")
    return _HYPEREXPONENTIAL, 0.5 * (1.0 + math.sqrt((scv - 1.0) / (scv + 1.0))), 0.0


@inlined_kernel
def draw(row: Floats, random: np.random.Generator) -> float:
    """One time with mean 1."""
    kind = row[0]
    if kind == _GAMMA:
        return float(random.standard_gamma(row[1]) * row[2])
    if kind == _EXPONENTIAL:
        return random.standard_exponential()
    if kind == _LOGNORMAL:
        return math.exp(row[1] + row[2] * random.standard_normal())
    if kind == _HYPEREXPONENTIAL:
        share = row[1] if random.random() < row[1] else 1.0 - row[1]
        return float(random.standard_exponential() / (2.0 * share))
    return 1.0
