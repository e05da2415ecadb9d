"""Converts publications in any form to one array: publications × attributes of the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lavant.client.encryption.schema import Schema
from lavant.core.errors import InvalidValue
from lavant.core.ids import PublicationId
from lavant.core.publications.publication import Publication

Columns = Mapping[str, ArrayLike]
Rows = Sequence[Publication | Mapping[str, Any]]

Doubles = NDArray[np.float64]


def values_of(schema: Schema, publications: Columns | Rows) -> tuple[Doubles, tuple[PublicationId, ...] | None]:
    """Returns the values, and the ids if all are `Publication`s. Attributes outside the schema are left out."""
    if isinstance(publications, Mapping):
        return _from_columns(schema, publications), None
    rows = [(p.attributes if isinstance(p, Publication) else p) for p in publications]
    ids = tuple(PublicationId(p.id) for p in publications if isinstance(p, Publication))
    values = [[_number(row, number, name) for name in schema.names] for number, row in enumerate(rows)]
    array = np.array(values, np.float64).reshape(len(rows), len(schema.names))
    return array, ids if rows and len(ids) == len(rows) else None


def _from_columns(schema: Schema, columns: Columns) -> Doubles:
    arrays: list[NDArray[Any]] = []
    for name in schema.names:
        if name not in columns:
            raise InvalidValue(f"no column {name!r} among {sorted(columns)}; {_ALL_NEEDED}")
        array = np.asarray(columns[name])
        if array.ndim != 1 or (array.dtype.kind not in "iuf" and len(array)):
            raise InvalidValue(
                f"column {name!r} must be a flat array of numbers, got {array.dtype} of {array.ndim} axes"
            )
        arrays.append(array.astype(np.float64))
    lengths = {name: len(array) for name, array in zip(schema.names, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise InvalidValue(f"columns must be of one length, got {lengths}")
    return np.stack(arrays, axis=1)


def _number(row: Mapping[str, Any], number: int, name: str) -> float:
    value = row.get(name)
    if value is None:
        raise InvalidValue(f"publication {number} has no attribute {name!r}; {_ALL_NEEDED}")
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidValue(f"attribute {name!r} of publication {number} must be a number, got {value!r:.60}")
    return float(value)


_ALL_NEEDED = "an encrypted publication carries every attribute of its schema, or its absence would show"
