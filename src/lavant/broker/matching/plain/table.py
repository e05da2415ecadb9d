"""Filters by column: the input of the index, and the form that is merged and written to disk.

A filter is one or more rows, a row is one or more predicates, and a predicate requires the value of one *dimension* to
lie in a closed interval [low, high] of doubles:

    dimension            value of a publication                     example
    (volume, NUMBER)     the number                                 volume > 300000   [300000.00000000006, ∞]
    (symbol, STRING)     position in the table's strings            symbol = 'YHOO'   [3, 3]
    (listed, BOOLEAN)    0 or 1                                     listed = true     [1, 1]
    (date, PRESENCE)     1 where the attribute is there, else 0     exists(date)      [1, 1]

A value that is absent or of another type is NaN, which lies in no interval. What an interval cannot express (a set with
holes, a suffix) is in `ExtraConstraints`; the interval is then the hull. A short list, `symbol in ('A', 'B')`, becomes
a row for each value, so that each is found by equality.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.matching.plain.extras import ExtraConstraints, ranges
from lavant.broker.matching.plain.strings import StringTable, high_entries, low_entries, remap_high, remap_low
from lavant.core.errors import LimitExceeded
from lavant.core.kernels.kernels import frozen

DIMENSIONS_MAX = 4096
"""Per table: a search makes a column for each. A matcher keeps filters with more in several segments."""


class ConstraintKind(enum.IntEnum):
    """The property of an attribute that is compared."""

    NUMBER = 0
    STRING = 1
    BOOLEAN = 2
    PRESENCE = 3


Dimension = tuple[str, ConstraintKind]


@dataclass(frozen=True, eq=False)
class FilterTable:
    """Row r belongs to filter `row_filter[r]` and has the predicates `row_start[r]` to `row_start[r + 1]`."""

    count: int
    dimensions: tuple[Dimension, ...]
    strings: StringTable
    row_filter: NDArray[np.uint32]
    row_start: NDArray[np.uint32]
    dimension: NDArray[np.uint16]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    extras: ExtraConstraints

    def __len__(self) -> int:
        return self.count

    @property
    def rows(self) -> int:
        return len(self.row_filter)

    def dimension_counts(self) -> dict[Dimension, int]:
        """By dimension, how many of the filters compare it."""
        if self.count == 1:
            return dict.fromkeys(self.dimensions, 1)
        filter_of = np.repeat(self.row_filter, np.diff(self.row_start)).astype(np.uint64)
        width = np.uint64(max(1, len(self.dimensions)))
        pairs = np.unique(filter_of * width + self.dimension)
        counts = np.bincount((pairs % width).astype(np.int64), minlength=len(self.dimensions))
        return dict(zip(self.dimensions, counts.tolist(), strict=True))

    def frozen(self) -> FilterTable:
        """Read-only for kernels, wherever its columns come from."""
        return replace(
            self,
            row_start=frozen(self.row_start),
            dimension=frozen(self.dimension),
            low=frozen(self.low),
            high=frozen(self.high),
            extras=self.extras._replace(**{name: frozen(each) for name, each in self.extras._asdict().items()}),
        )

    def take(self, indices: NDArray[np.intp]) -> FilterTable:
        """The filters with these numbers, in this order."""
        wanted = indices.astype(np.uint32)
        first_row = np.searchsorted(self.row_filter, wanted, "left")
        last_row = np.searchsorted(self.row_filter, wanted, "right")
        rows = ranges(first_row, last_row)
        rows_of_filter = last_row - first_row
        predicates = ranges(self.row_start[rows], self.row_start[rows + 1])
        predicates_of_row = self.row_start[rows + 1] - self.row_start[rows]
        taken = FilterTable(
            len(indices),
            self.dimensions,
            self.strings,
            np.repeat(np.arange(len(indices), dtype=np.uint32), rows_of_filter),
            _offsets(predicates_of_row),
            self.dimension[predicates],
            self.low[predicates],
            self.high[predicates],
            self.extras.take(predicates),
        )
        return _without_unused(taken) if len(indices) < self.count else taken

    @classmethod
    def concatenate(cls, parts: Sequence[FilterTable]) -> FilterTable:
        """The filters of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        strings, new_numbers = StringTable.union([part.strings for part in parts])
        dimensions = tuple(dict.fromkeys(dimension for part in parts for dimension in part.dimensions))
        check_dimensions(len(dimensions))
        code = {dimension: number for number, dimension in enumerate(dimensions)}
        moved = [
            _move(part, numbers, np.array([code[d] for d in part.dimensions], np.uint16))
            for part, numbers in zip(parts, new_numbers, strict=True)
        ]
        filters = np.cumsum([0, *(len(part) for part in parts)])
        return cls(
            int(filters[-1]),
            dimensions,
            strings,
            np.concatenate([m.row_filter + np.uint32(n) for m, n in zip(moved, filters[:-1], strict=True)]),
            _offsets(np.concatenate([np.diff(m.row_start) for m in moved])),
            np.concatenate([m.dimension for m in moved]),
            np.concatenate([m.low for m in moved]),
            np.concatenate([m.high for m in moved]),
            ExtraConstraints.concatenate([(m.extras, len(m.low)) for m in moved]),
        )

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        meta = {"count": self.count, "dimensions": [[name, int(kind)] for name, kind in self.dimensions]}
        return meta, {
            "string_offsets": self.strings.offsets,
            "string_data": self.strings.data,
            "row_filter": self.row_filter,
            "row_start": self.row_start,
            "dimension": self.dimension,
            "low": self.low,
            "high": self.high,
            **{f"extras.{name}": array for name, array in self.extras._asdict().items()},
        }

    @classmethod
    def from_arrays(cls, meta: dict[str, Any], arrays: container.Arrays) -> Self:
        return cls(
            meta["count"],
            tuple((name, ConstraintKind(kind)) for name, kind in meta["dimensions"]),
            StringTable(arrays["string_offsets"], arrays["string_data"]),
            arrays["row_filter"],
            arrays["row_start"],
            arrays["dimension"],
            arrays["low"],
            arrays["high"],
            ExtraConstraints(**{name: arrays[f"extras.{name}"] for name in ExtraConstraints._fields}),
        )


def fit_together(parts: Sequence[FilterTable]) -> bool:
    """Whether `concatenate` can make one table of them."""
    return len({dimension for part in parts for dimension in part.dimensions}) <= DIMENSIONS_MAX


def check_dimensions(count: int) -> None:
    if count > DIMENSIONS_MAX:
        raise LimitExceeded(
            f"filters that are encoded together compare {count} attributes, at most {DIMENSIONS_MAX} are allowed; "
            "use fewer attribute names, or fewer filters at once"
        )


def _without_unused(table: FilterTable) -> FilterTable:
    """The same without strings and dimensions of removed filters, which would otherwise accumulate."""
    used = np.zeros(len(table.dimensions), np.bool_)
    used[table.dimension] = True
    is_string = np.array([kind is ConstraintKind.STRING for _, kind in table.dimensions], np.bool_)[table.dimension]
    in_extras = table.extras.per_interval(is_string[table.extras.predicate])
    known = np.zeros(table.strings.entries, np.bool_)
    for ends, chosen, entries in (
        (table.low, is_string, low_entries),
        (table.high, is_string, high_entries),
        (table.extras.low, in_extras, low_entries),
        (table.extras.high, in_extras, high_entries),
    ):
        known[entries(ends[chosen & np.isfinite(ends)])] = True
    if used.all() and known.all():
        return table
    moved = _move(table, np.cumsum(known) - 1, (np.cumsum(used) - 1).astype(np.uint16))
    dimensions = tuple(dimension for dimension, kept in zip(table.dimensions, used, strict=True) if kept)
    return replace(moved, dimensions=dimensions, strings=table.strings.keep(known))


def _move(part: FilterTable, new_number: NDArray[np.int64], new_dimension: NDArray[np.uint16]) -> FilterTable:
    """The same filters in terms of another string table and other dimension numbers."""
    is_string_dimension = np.array([kind is ConstraintKind.STRING for _, kind in part.dimensions], np.bool_)
    is_string = is_string_dimension[part.dimension] if len(part.dimensions) else np.empty(0, np.bool_)
    extra_is_string = is_string[part.extras.predicate]
    return replace(
        part,
        dimension=new_dimension[part.dimension] if len(new_dimension) else part.dimension,
        low=_where_finite(part.low, is_string, remap_low, new_number),
        high=_where_finite(part.high, is_string, remap_high, new_number),
        extras=part.extras._replace(
            low=_where_finite(part.extras.low, part.extras.per_interval(extra_is_string), remap_low, new_number),
            high=_where_finite(part.extras.high, part.extras.per_interval(extra_is_string), remap_high, new_number),
        ),
    )


def _where_finite(
    ends: NDArray[np.float64],
    chosen: NDArray[np.bool_],
    remap: Callable[..., NDArray[np.float64]],
    new_number: NDArray[np.int64],
) -> NDArray[np.float64]:
    chosen = chosen & np.isfinite(ends)
    if not chosen.any():
        return ends
    moved = ends.copy()
    moved[chosen] = remap(ends[chosen], new_number)
    return moved


def _offsets(lengths: NDArray[Any]) -> NDArray[np.uint32]:
    offsets = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
