"""Encrypted tests and points as the server sees them, validated on arrival.

A subscription is T vectors (its tests), a publication one vector (its point), all of D dimensions: for d attributes, T
= 2d and D = d + 1. Vectors come from clients, so everything that can be checked without the key is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.container import Arrays
from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.ids import PublicationId

ATTRIBUTES_MAX = 16
DIMENSIONS_MIN, DIMENSIONS_MAX = 2, ATTRIBUTES_MAX + 1
TESTS_MAX = 2 * ATTRIBUTES_MAX
"""With more attributes the block no longer fits the second-level cache, and rounding approaches the tolerance."""

LENGTH_MIN, LENGTH_MAX = 1e-100, 1e100
"""Of a vector, so that products of three lengths neither overflow nor vanish."""

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EncryptedFilters:
    """Subscriptions: `tests[i, j]` is the j-th test of the i-th. It matches a point where none is negative."""

    tests: Doubles

    def __post_init__(self) -> None:
        _check_tests(self.tests)
        self.check_vectors()

    def check_vectors(self) -> None:
        """Raise unless every vector is finite and of a sane length."""
        _check_lengths("test vector of encrypted filter", self.tests)

    @property
    def dimensions(self) -> int:
        return int(self.tests.shape[2])

    @property
    def tests_each(self) -> int:
        return int(self.tests.shape[1])

    def __len__(self) -> int:
        return len(self.tests)

    def __repr__(self) -> str:
        return f"EncryptedFilters({len(self)} filters of {self.tests_each} tests in {self.dimensions} dimensions)"

    def take(self, indices: NDArray[np.intp]) -> Self:
        return self._unchecked(self.tests[indices])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        return cls._unchecked(np.concatenate([part.tests for part in parts]))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"tests": self.tests}

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: Arrays) -> Self:
        """On mapped arrays, which are not read here; call `check_vectors` for untrusted ones."""
        tests = arrays.get("tests")
        if tests is None:
            raise InvalidValue(f"encrypted filters need the array 'tests', got {sorted(arrays)}")
        _check_tests(tests)
        return cls._unchecked(tests)

    @classmethod
    def _unchecked(cls, tests: Doubles) -> Self:
        filters = object.__new__(cls)
        object.__setattr__(filters, "tests", tests)
        return filters


@dataclass(frozen=True, eq=False)
class EncryptedBatch:
    """Publications: one encrypted point each, with optional ids."""

    points: Doubles
    ids: tuple[PublicationId, ...] | None = None

    def __post_init__(self) -> None:
        _check_shape("an encrypted batch", self.points, axes=2)
        _check_lengths("point of encrypted publication", self.points)
        if self.ids is not None and len(self.ids) != len(self.points):
            raise InvalidValue(f"got {len(self.ids)} ids for {len(self.points)} encrypted points; give each one id")

    @property
    def dimensions(self) -> int:
        return int(self.points.shape[1])

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"EncryptedBatch({len(self)} publications in {self.dimensions} dimensions)"


def _check_tests(tests: Doubles) -> None:
    _check_shape("encrypted filters", tests, axes=3)
    if not 1 <= tests.shape[1] <= TESTS_MAX:
        raise LimitExceeded(
            f"an encrypted filter has {tests.shape[1]} tests, between 1 and {TESTS_MAX} are allowed "
            f"(two for each of at most {ATTRIBUTES_MAX} attributes)"
        )


def _check_shape(what: str, array: object, *, axes: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != axes:
        shown = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        names = "filters × tests × dimensions" if axes == 3 else "publications × dimensions"
        raise InvalidValue(f"{what} must be a float64 array of {names}, got {shown}")
    if not DIMENSIONS_MIN <= array.shape[-1] <= DIMENSIONS_MAX:
        raise LimitExceeded(
            f"{what} must have between {DIMENSIONS_MIN} and {DIMENSIONS_MAX} dimensions (one more than attributes), "
            f"got {array.shape[-1]}"
        )


def _check_lengths(what: str, vectors: Doubles) -> None:
    bad = odd_lengths(vectors)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidValue(length_problem(f"{what} {first[0]}", vectors[first]))


def odd_lengths(vectors: Doubles) -> NDArray[np.bool_]:
    """Which vectors are not finite, or too short or too long to compute with."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("...i,...i->...", vectors, vectors)
        return np.asarray(~((squares >= LENGTH_MIN**2) & (squares <= LENGTH_MAX**2)))  # also catches NaN


def length_problem(what: str, vector: Doubles) -> str:
    return (
        f"{what} is {vector.tolist()}: its length must be finite and between "
        f"{LENGTH_MIN:g} and {LENGTH_MAX:g}; encrypt it with the client's key"
    )
