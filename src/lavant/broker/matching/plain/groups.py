"""Groups rows so that everything decided by equality takes one look-up.

The equality predicates of a row are its *key*, and one literal of its suffix and contains patterns, if it has any that
are not negated. The rest determines its form:

    AT_LEAST   one lower bound, x >= low    class = 'STOCK' and symbol = 'IBM' and volume > 300000
    AT_MOST    one upper bound, x <= high   class = 'STOCK' and name like '%soft%' and low < 25.5
    ALL        nothing                      class = 'STOCK' and symbol = 'IBM'
    MIXED      anything else

Rows of the same form, key dimensions and bounded dimension are a *group*. A publication is looked up once in each
group, and where literals are part of the key once for each literal in its texts. So groups must be few: where there are
many, the rows of small ones keep one equality, the one with the most distinct values, and their literal as their key,
and become MIXED.

Of several literals the longest is the key, because fewest texts contain it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.plain.extras import NEGATED, ExtraConstraints
from lavant.broker.matching.plain.literals import NONE, SUFFIX, Literals
from lavant.broker.matching.plain.table import FilterTable
from lavant.core.kernels.kernels import kernel

AT_LEAST, AT_MOST, ALL, MIXED = 0, 1, 2, 3

GROUPS_FEW = 16
"""Up to this many groups, each may have any size."""
GROUPS_MAX = 64
GROUP_ROWS_MIN = 32

ANY_KEY, NO_KEY = -1, -2
"""The equalities that a row may use as its key: all, none, or (from 0 on) only that of one dimension."""
LITERAL = -1
"""In place of a dimension, as the first of a key: the literal that the texts must have."""


class RowGroup(NamedTuple):
    """Rows that are looked up together."""

    form: int
    key: tuple[int, ...]
    """Dimensions, ascending; LITERAL is before them."""
    bound_dimension: int
    """-1 where the form has no bound."""
    rows: NDArray[np.int64]


class LiteralKeys(NamedTuple):
    """The literal in each row's key, and which predicates it decides alone."""

    of_row: NDArray[np.int32]
    """NONE where a row has no pattern, or only negated ones."""
    is_decided: NDArray[np.bool_]


class _Forms(NamedTuple):
    """Properties of each row, found in one pass over its predicates."""

    form: NDArray[np.int64]
    has_literal: NDArray[np.bool_]
    key_hash: NDArray[np.uint64]
    bound_dimension: NDArray[np.int64]


def choose_literals(table: FilterTable, literals: Literals) -> LiteralKeys:
    """Take the longest literal of each row's patterns as part of its key."""
    keys = LiteralKeys(np.full(table.rows, NONE, np.int32), np.zeros(len(table.low), np.bool_))
    if len(literals.of_pattern):
        row_of = np.searchsorted(table.row_start, table.extras.predicate, "right") - 1
        _choose_literals(table.extras, literals.of_pattern, row_of, table.low, table.high, keys)
    return keys


def group_rows(table: FilterTable, literal_keys: LiteralKeys) -> list[RowGroup]:
    """All rows of the table in groups, ordered by form."""
    is_point = (table.low == table.high) & ~extra_flags(table)
    allowed = np.full(table.rows, ANY_KEY, np.int32)
    groups = _groups(table, literal_keys, is_point, allowed)
    if len(groups) > GROUPS_FEW:
        ranked = sorted(groups, key=lambda group: -len(group.rows))
        small = [g for i, g in enumerate(ranked) if i >= GROUPS_MAX or len(g.rows) < GROUP_ROWS_MIN]
        best = _most_selective_key(table, is_point)
        for group in small:
            allowed[group.rows] = best[group.rows]
        groups = _groups(table, literal_keys, is_point, allowed)
    return groups


def extra_flags(table: FilterTable) -> NDArray[np.bool_]:
    """Which predicates have extras."""
    flags = np.zeros(len(table.low), np.bool_)
    flags[table.extras.predicate] = True
    return flags


def key_values(table: FilterTable, literal_keys: LiteralKeys, group: RowGroup) -> NDArray[np.float64]:
    """The values of the group's key, one line per row."""
    values = np.empty((len(group.rows), len(group.key)))
    if LITERAL in group.key:
        values[:, 0] = literal_keys.of_row[group.rows]
    _collect_keys(group.rows, np.array(group.key, np.int64), table.row_start, table.dimension, table.low, values)
    return values


def _groups(
    table: FilterTable, literal_keys: LiteralKeys, is_point: NDArray[np.bool_], allowed: NDArray[np.int32]
) -> list[RowGroup]:
    forms = _Forms(
        np.empty(table.rows, np.int64),
        literal_keys.of_row != NONE,
        np.empty(table.rows, np.uint64),
        np.empty(table.rows, np.int64),
    )
    has_extra = extra_flags(table)
    is_decided = literal_keys.is_decided
    _classify(table.row_start, table.dimension, table.low, table.high, is_point, is_decided, has_extra, allowed, forms)
    order = np.lexsort((forms.bound_dimension, forms.key_hash, forms.has_literal, forms.form))
    sorted_forms = [column[order] for column in forms]
    changes = np.zeros(len(order), np.bool_)
    for column in sorted_forms:
        changes[1:] |= column[1:] != column[:-1]
    groups: list[RowGroup] = []
    for rows in np.split(order, np.flatnonzero(changes)) if len(order) else []:
        first = rows[0]
        key = _key_of_row(table, is_point, allowed, first)
        other = _rows_of_other_key(rows, key, table.row_start, table.dimension, is_point, allowed)
        if len(other):  # two sets of dimensions with one hash; such rows do without a key
            allowed[other] = NO_KEY
            return _groups(table, literal_keys, is_point, allowed)
        dimensions = (LITERAL,) * int(forms.has_literal[first]) + tuple(int(d) for d in key)
        groups.append(RowGroup(int(forms.form[first]), dimensions, int(forms.bound_dimension[first]), rows))
    return groups


def _key_of_row(
    table: FilterTable, is_point: NDArray[np.bool_], allowed: NDArray[np.int32], row: int
) -> NDArray[np.int64]:
    predicates = slice(table.row_start[row], table.row_start[row + 1])
    dimensions = np.sort(table.dimension[predicates][is_point[predicates]]).astype(np.int64)
    return dimensions if allowed[row] == ANY_KEY else dimensions[dimensions == allowed[row]]


def _most_selective_key(table: FilterTable, is_point: NDArray[np.bool_]) -> NDArray[np.int32]:
    """For each row the dimension of its equality that has the most distinct values in the table, or NO_KEY."""
    distinct = np.zeros(len(table.dimensions), np.int64)
    for d in range(len(distinct)):
        distinct[d] = len(np.unique(table.low[is_point & (table.dimension == d)]))
    best = np.empty(table.rows, np.int32)
    _choose_key(table.row_start, table.dimension, is_point, distinct, best)
    return best


@kernel
def mix(x: np.uint64) -> np.uint64:
    """Scatter the bits of a number (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def _choose_literals(
    extras: ExtraConstraints,
    of_pattern: NDArray[np.int32],
    row_of: NDArray[np.int64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    keys: LiteralKeys,
) -> None:
    row, longest = np.int64(-1), np.int64(0)
    chosen = np.int64(-1)  # the predicate that the row's literal decides
    for x in range(len(row_of)):
        if row_of[x] != row:
            row, longest, chosen = row_of[x], np.int64(0), np.int64(-1)
        first, last = extras.pattern_start[x], extras.pattern_start[x + 1]
        p = np.int64(extras.predicate[x])
        has_more = last - first > 1 or extras.interval_start[x] < extras.interval_start[x + 1]
        for pattern in range(first, last):
            kind = extras.pattern_kind[pattern]
            length = np.int64(extras.literal_start[pattern + 1]) - np.int64(extras.literal_start[pattern])
            length = 2 * length + (kind == SUFFIX)
            if kind < NEGATED and length > longest:
                longest = length
                keys.of_row[row] = of_pattern[pattern]
                if chosen >= 0:
                    keys.is_decided[chosen] = False
                chosen = p
                keys.is_decided[p] = not has_more and low[p] == -np.inf and high[p] == np.inf


@kernel
def _classify(
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    is_point: NDArray[np.bool_],
    is_decided: NDArray[np.bool_],
    has_extra: NDArray[np.bool_],
    allowed: NDArray[np.int32],
    forms: _Forms,
) -> None:
    for r in range(len(row_start) - 1):
        key_hash = np.uint64(0)
        rest = 0
        last = np.int64(0)
        for p in range(row_start[r], row_start[r + 1]):
            if is_point[p] and (allowed[r] == ANY_KEY or allowed[r] == dimension[p]):
                key_hash += mix(np.uint64(dimension[p]) + np.uint64(0x9E3779B97F4A7C15))
            elif not is_decided[p]:
                rest += 1
                last = np.int64(p)
        forms.key_hash[r] = key_hash
        forms.form[r] = MIXED
        forms.bound_dimension[r] = -1
        if allowed[r] != ANY_KEY:
            continue
        if rest == 0:
            forms.form[r] = ALL
        elif rest == 1 and not has_extra[last] and (low[last] == -np.inf) != (high[last] == np.inf):
            forms.form[r] = AT_LEAST if high[last] == np.inf else AT_MOST
            forms.bound_dimension[r] = dimension[last]


@kernel
def _rows_of_other_key(
    rows: NDArray[np.int64],
    key: NDArray[np.int64],
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    is_point: NDArray[np.bool_],
    allowed: NDArray[np.int32],
) -> NDArray[np.int64]:
    other = np.empty(len(rows), np.int64)
    count = 0
    for r in rows:
        found = 0
        strange = False
        for p in range(row_start[r], row_start[r + 1]):
            if is_point[p] and (allowed[r] == ANY_KEY or allowed[r] == dimension[p]):
                known = False
                for d in key:
                    known |= d == dimension[p]
                found += 1
                strange |= not known
        if strange or found != len(key):
            other[count] = r
            count += 1
    return other[:count]


@kernel
def _choose_key(
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    is_point: NDArray[np.bool_],
    distinct: NDArray[np.int64],
    best: NDArray[np.int32],
) -> None:
    for r in range(len(row_start) - 1):
        best[r] = NO_KEY
        for p in range(row_start[r], row_start[r + 1]):
            if is_point[p] and (best[r] == NO_KEY or distinct[dimension[p]] > distinct[best[r]]):
                best[r] = dimension[p]


@kernel
def _collect_keys(
    rows: NDArray[np.int64],
    key: NDArray[np.int64],
    row_start: NDArray[np.uint32],
    dimension: NDArray[np.uint16],
    low: NDArray[np.float64],
    values: NDArray[np.float64],
) -> None:
    for i in range(len(rows)):
        for p in range(row_start[rows[i]], row_start[rows[i] + 1]):
            for k in range(len(key)):
                if dimension[p] == key[k]:
                    values[i, k] = low[p]
