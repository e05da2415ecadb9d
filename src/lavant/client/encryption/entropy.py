"""Randomness for keys and scales, from the operating system unless a test supplies its own source."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]
"""Returns so many random bytes, like `secrets.token_bytes`."""

Doubles = NDArray[np.float64]


def uniform(entropy: Entropy, *shape: int) -> Doubles:
    """Uniform doubles in [0, 1), multiples of 2⁻⁵³."""
    count = math.prod(shape)
    whole = np.frombuffer(entropy(8 * count), np.uint64)
    return np.asarray((whole >> np.uint64(11)) * 2.0**-53).reshape(shape)


def log_uniform(entropy: Entropy, low: float, high: float, *shape: int) -> Doubles:
    """Doubles in [low, high) with uniform logarithms: all scales are equally likely."""
    return np.asarray(low * (high / low) ** uniform(entropy, *shape))


def normal(entropy: Entropy, *shape: int) -> Doubles:
    """Standard normal doubles, by Box and Muller."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(entropy, *shape)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(entropy, *shape)))


def permutations(entropy: Entropy, rows: int, length: int) -> NDArray[np.intp]:
    """A random permutation of 0 … length - 1 in each row."""
    return np.argsort(np.frombuffer(entropy(8 * rows * length), np.uint64).reshape(rows, length), axis=1)
