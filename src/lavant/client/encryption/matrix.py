"""Secret matrices that are random and yet well conditioned, so that encryption does not cost precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lavant.client.encryption.entropy import Entropy, log_uniform, normal

Doubles = NDArray[np.float64]

CONDITION_MAX = 16.0
"""Largest over smallest singular value. More would hide nothing better and cost digits (see `schema.STEPS_MAX`)."""


def random_matrix(entropy: Entropy, dimensions: int) -> Doubles:
    """U·diag(σ)·Vᵀ with U and V random rotations or reflections and 1 ≤ σ < CONDITION_MAX."""
    stretch = log_uniform(entropy, 1.0, CONDITION_MAX * (1 - 1e-9), dimensions)
    return (random_orthogonal(entropy, dimensions) * stretch) @ random_orthogonal(entropy, dimensions).T


def random_orthogonal(entropy: Entropy, dimensions: int) -> Doubles:
    """Uniform over all orthogonal matrices: QR of a normal matrix, signs fixed (Mezzadri 2007)."""
    q, r = np.linalg.qr(normal(entropy, dimensions, dimensions))
    return np.asarray(q * np.sign(np.diag(r)))


def condition(matrix: Doubles) -> float:
    return float(np.linalg.cond(matrix))
