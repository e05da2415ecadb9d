"""The key that publishers and subscribers share.

Choi, Ghinita, Bertino: A Privacy-Enhancing Content-Based Publish/Subscribe System Using Scalar Product Preserving
Transformations (DEXA 2010), after Wong et al. (SIGMOD 2009). For d attributes, normalised to [-1, 1]:

    publication x        p = r·(x, 1), random r > 0              E(p) = Mᵀ p
    test xᵢ ≥ b          q = s·(eᵢ, -b), random s > 0            E(q) = M⁻¹ q
    test xᵢ < b          q = s·(-eᵢ, b)
                                                                 E(p)·E(q) = p·q = ± r·s·(xᵢ - b)

M is the key, of d + 1 dimensions. The server learns the sign of xᵢ - b, which matching needs, but not x, b or i. Every
filter has 2d tests in random order: an attribute that it does not constrain gets bounds out of range.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.values import EncryptedBatch, EncryptedFilters
from lavant.client.encryption.columns import Columns, Rows, values_of
from lavant.client.encryption.entropy import Entropy, log_uniform, normal, permutations, uniform
from lavant.client.encryption.ranges import Grid, ranges_of
from lavant.client.encryption.schema import Schema
from lavant.core.errors import UNDECODABLE, InvalidValue

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher


FORMAT = "lavant-aspe-key-1"


class KeyFile(msgspec.Struct, frozen=True):
    """The contents of a key file. Doubles are written with all digits, so reading returns the same key."""

    schema: Schema
    matrix: list[list[float]]
    format: str = FORMAT

    def __repr__(self) -> str:
        return f"KeyFile(of {', '.join(self.schema.names)})"

    def write(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InvalidValue(
                f"{path} exists; a key is never overwritten, since what it encrypted would be lost: choose another name"
            ) from None
        except OSError as error:
            raise InvalidValue(f"cannot write the key {path}: {error.strerror}") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self), indent=2))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, path: Path) -> KeyFile:
        try:
            file = msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise InvalidValue(f"cannot read the key {path}: {error.strerror}") from None
        except UNDECODABLE as error:  # its text names the position, never the content
            raise InvalidValue(f"{path} is not a key of Lavant: {error}; restore it from a copy") from None
        if file.format != FORMAT:
            raise InvalidValue(f"{path} has format {file.format!r}, expected {FORMAT!r}: it is of another version")
        if len({len(row) for row in file.matrix}) != 1:
            raise InvalidValue(f"{path} holds a matrix whose rows differ in length; restore it from a copy")
        return file


Doubles = NDArray[np.float64]

CONDITION_MAX = 16.0
"""Largest over smallest singular value. More would hide nothing better and lose digits (see `schema.STEPS_MAX`)."""


def random_matrix(entropy: Entropy, dimensions: int) -> Doubles:
    """U·diag(σ)·Vᵀ with U and V random rotations or reflections and 1 ≤ σ < CONDITION_MAX."""
    singular_values = log_uniform(entropy, 1.0, CONDITION_MAX * (1 - 1e-9), dimensions)
    return (random_orthogonal(entropy, dimensions) * singular_values) @ random_orthogonal(entropy, dimensions).T


def random_orthogonal(entropy: Entropy, dimensions: int) -> Doubles:
    """Uniform over all orthogonal matrices: QR of a normal matrix, signs fixed (Mezzadri 2007)."""
    q, r = np.linalg.qr(normal(entropy, dimensions, dimensions))
    return np.asarray(q * np.sign(np.diag(r)))


def condition(matrix: Doubles) -> float:
    return float(np.linalg.cond(matrix))


SCALE_MIN, SCALE_MAX = 2.0**-8, 2.0**8
"""The range of the random factors r and s."""

OUT_OF_RANGE = 1.0
"""How far beyond [-1, 1] the bounds of unconstrained attributes may lie."""


class Key:
    """Encrypts publications and filters of one schema. Every holder can also read what others encrypted with it.

    >>> from lavant.client.encryption import NumericAttribute
    >>> Key.generate(Schema.of(NumericAttribute("price", 0, 1000, 0.01)))
    Key(of price)
    """

    def __init__(self, schema: Schema, matrix: Doubles, *, entropy: Entropy = secrets.token_bytes) -> None:
        dimensions = len(schema.attributes) + 1
        if matrix.shape != (dimensions, dimensions) or not np.isfinite(matrix).all():
            raise InvalidValue(
                f"the key of {dimensions - 1} attributes is a finite matrix of {dimensions} × {dimensions}, "
                f"got one of {' × '.join(map(str, matrix.shape))}; generate a new key"
            )
        if not condition(matrix) <= CONDITION_MAX:
            raise InvalidValue(
                f"the key's matrix has condition {condition(matrix):.3g}, above {CONDITION_MAX:g}: comparisons would "
                "not be exact; generate a new key"
            )
        self.schema = schema
        self._matrix = matrix
        self._inverse = np.linalg.inv(matrix)
        self._grid = Grid(schema)
        self._entropy = entropy

    @classmethod
    def generate(cls, schema: Schema, *, entropy: Entropy = secrets.token_bytes) -> Key:
        """A new random key."""
        return cls(schema, random_matrix(entropy, len(schema.attributes) + 1), entropy=entropy)

    def __repr__(self) -> str:  # without the matrix: printed values end up in logs
        return f"Key(of {', '.join(self.schema.names)})"

    def save(self, path: Path | str) -> None:
        """Writes the key to a new file that only its owner may read."""
        KeyFile(self.schema, self._matrix.tolist()).write(Path(path))

    @classmethod
    def load(cls, path: Path | str) -> Key:
        """Reads a saved key."""
        file = KeyFile.read(Path(path))
        return cls(file.schema, np.array(file.matrix, np.float64))

    def cipher(self) -> Cipher:
        """The cipher for whole publications."""
        from lavant.client.encryption.cipher import Cipher  # noqa: PLC0415

        return Cipher(self, self._matrix.astype("<f8").tobytes())

    def encrypt_publications(self, publications: Columns | Rows) -> EncryptedBatch:
        """Encrypts publications, mappings of attributes, or one mapping of columns; none may lack an attribute."""
        values, ids = values_of(self.schema, publications)
        places = self._grid.place(self._grid.points(values))
        extended = np.column_stack([places, np.ones(len(places))])
        scale = log_uniform(self._entropy, SCALE_MIN, SCALE_MAX, len(places), 1)
        return EncryptedBatch((scale * extended) @ self._matrix, ids)

    def encrypt_filters(self, filters: Sequence[Filter]) -> EncryptedFilters:
        """Encrypts filters that are one conjunction with one numeric range for each attribute."""
        return self.encrypt_ranges(*ranges_of(self.schema, filters))

    def encrypt_ranges(self, low: ArrayLike, high: ArrayLike) -> EncryptedFilters:
        """Encrypts half-open ranges low ≤ x < high, filters × attributes, with -inf and inf for no bound."""
        lows, highs = self._checked(low), self._checked(high)
        if len(lows) != len(highs):
            raise InvalidValue(f"low and high must be of the same filters, got {len(lows)} and {len(highs)} filters")
        count, attributes = lows.shape
        bounds = np.stack([self._low_places(lows), self._high_places(highs)], axis=2).reshape(count, 2 * attributes)
        order = permutations(self._entropy, count, 2 * attributes)
        scale = log_uniform(self._entropy, SCALE_MIN, SCALE_MAX, count, 2 * attributes)
        factor = np.where(order % 2 == 0, scale, -scale)  # even: x ≥ bound, odd: x < bound
        directions = self._inverse.T[order // 2]  # E(eᵢ), the i-th column of the inverse
        shifted = directions - np.take_along_axis(bounds, order, axis=1)[..., None] * self._inverse[:, -1]
        return EncryptedFilters(factor[..., None] * shifted)

    def _checked(self, bounds: ArrayLike) -> Doubles:
        array = np.asarray(bounds, np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.schema.names):
            raise InvalidValue(
                f"bounds must be an array of filters × {len(self.schema.names)} attributes "
                f"({', '.join(self.schema.names)}), got shape {array.shape}"
            )
        return array

    def _low_places(self, low: Doubles) -> Doubles:
        first = self._grid.first_not_below(low)
        beyond = OUT_OF_RANGE * uniform(self._entropy, *low.shape)
        return self._grid.place(first - 0.5) - np.where(first == 0, beyond, 0.0)

    def _high_places(self, high: Doubles) -> Doubles:
        first = self._grid.first_not_below(high)
        beyond = OUT_OF_RANGE * uniform(self._entropy, *high.shape)
        return self._grid.place(first - 0.5) + np.where(first > self._grid.steps, beyond, 0.0)
