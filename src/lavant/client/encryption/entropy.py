"""Randomness for keys and scales, all of it from the operating system's source unless a test supplies its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]
"""Gives that many random bytes; `secrets.token_bytes` does."""

Doubles = NDArray[np.float64]


def uniform(entropy: Entropy, *shape: int) -> Doubles:
    """Doubles in [0, 1), all multiples of 2⁻⁵³ alike."""
    count = math.prod(shape)
    whole = np.frombuffer(entropy(8 * count), np.uint64)
    return np.asarray((whole >> np.uint64(11)) * 2.0**-53).reshape(shape)


def log_uniform(entropy: Entropy, low: float, high: float, *shape: int) -> Doubles:
    """Doubles in [low, high) whose logarithms are uniform: no scale is likelier than another."""
    return np.asarray(low * (high / low) ** uniform(entropy, *shape))


def normal(entropy: Entropy, *shape: int) -> Doubles:
    """Standard normal doubles, by Box and Muller."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform(entropy, *shape)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(entropy, *shape)))


def permutations(entropy: Entropy, rows: int, length: int) -> NDArray[np.intp]:
    """In each row a random order of 0 … length - 1."""
    return np.argsort(np.frombuffer(entropy(8 * rows * length), np.uint64).reshape(rows, length), axis=1)
