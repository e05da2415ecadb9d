"""Constraints beyond an interval: sets with holes, and the suffix and contains patterns of strings.

Few predicates have extras, so they are kept apart from the predicates' columns: extra number x belongs to predicate
`predicate[x]` (ascending) and requires that the value lies in one of its intervals, if it has any, and that the string
passes all of its patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.filters.algebra.constraints import Pattern, PatternKind
from lavant.broker.matching.plain.literals import FoundLiterals, has_literal
from lavant.core.kernels.kernels import inlined_kernel

NEGATED = 2
"""Added to a pattern's kind in `pattern_kind`."""


class ExtraConstraints(NamedTuple):
    predicate: NDArray[np.uint32]
    interval_start: NDArray[np.uint32]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    pattern_start: NDArray[np.uint32]
    pattern_kind: NDArray[np.uint8]
    literal_start: NDArray[np.uint32]
    literal_data: NDArray[np.uint8]

    @classmethod
    def none(cls) -> ExtraConstraints:
        return cls.of([], [], [])

    @classmethod
    def of(
        cls,
        predicates: Sequence[int],
        intervals: Sequence[Sequence[tuple[float, float]]],
        patterns: Sequence[Sequence[Pattern]],
    ) -> ExtraConstraints:
        """Extras from rows of Python values, one row for each predicate that has any."""
        flat = [interval for row in intervals for interval in row]
        flat_patterns = [pattern for row in patterns for pattern in row]
        literals = [pattern.literal.encode() for pattern in flat_patterns]
        return cls(
            np.array(predicates, np.uint32),
            _starts([len(row) for row in intervals]),
            np.array([low for low, _ in flat], np.float64),
            np.array([high for _, high in flat], np.float64),
            _starts([len(row) for row in patterns]),
            np.array([p.kind + (NEGATED if p.negated else 0) for p in flat_patterns], np.uint8),
            _starts([len(literal) for literal in literals]),
            np.frombuffer(b"".join(literals), np.uint8),
        )

    def per_interval(self, of_extra: NDArray[Any]) -> NDArray[Any]:
        """A value of each extra, repeated for each of its intervals."""
        return np.repeat(of_extra, np.diff(self.interval_start))

    def take(self, predicates: NDArray[np.int64]) -> ExtraConstraints:
        """The extras of these predicates, numbered by their position in `predicates`."""
        if not len(self.predicate):
            return self
        place = np.minimum(np.searchsorted(self.predicate, predicates), len(self.predicate) - 1)
        found = np.flatnonzero(self.predicate[place] == predicates)
        kept = place[found]
        intervals = ranges(self.interval_start[kept], self.interval_start[kept + 1])
        patterns = ranges(self.pattern_start[kept], self.pattern_start[kept + 1])
        return ExtraConstraints(
            found.astype(np.uint32),
            _starts(np.diff(self.interval_start)[kept]),
            self.low[intervals],
            self.high[intervals],
            _starts(np.diff(self.pattern_start)[kept]),
            self.pattern_kind[patterns],
            _starts(np.diff(self.literal_start)[patterns]),
            self.literal_data[ranges(self.literal_start[patterns], self.literal_start[patterns + 1])],
        )

    def intervals_of(self, extra: int) -> list[tuple[float, float]]:
        part = slice(self.interval_start[extra], self.interval_start[extra + 1])
        return list(zip(self.low[part].tolist(), self.high[part].tolist(), strict=True))

    def patterns_of(self, extra: int) -> list[Pattern]:
        patterns = []
        for p in range(self.pattern_start[extra], self.pattern_start[extra + 1]):
            kind = int(self.pattern_kind[p])
            literal = self.literal_data[self.literal_start[p] : self.literal_start[p + 1]].tobytes().decode()
            patterns.append(Pattern(PatternKind(kind % NEGATED), literal, kind >= NEGATED))
        return patterns

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[ExtraConstraints, int]]) -> ExtraConstraints:
        """The extras of several tables, each with the number of predicates of its table."""
        shift = np.cumsum([0, *(predicates for _, predicates in parts)])
        extras = [extra for extra, _ in parts]
        return cls(
            np.concatenate([e.predicate + np.uint32(s) for e, s in zip(extras, shift[:-1], strict=True)]),
            _starts(np.concatenate([np.diff(e.interval_start) for e in extras])),
            np.concatenate([e.low for e in extras]),
            np.concatenate([e.high for e in extras]),
            _starts(np.concatenate([np.diff(e.pattern_start) for e in extras])),
            np.concatenate([e.pattern_kind for e in extras]),
            _starts(np.concatenate([np.diff(e.literal_start) for e in extras])),
            np.concatenate([e.literal_data for e in extras]),
        )


def ranges(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.int64]:
    """All numbers of all ranges [start, end), one range after the other."""
    starts, lengths = starts.astype(np.int64), (ends - starts).astype(np.int64)
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - before, lengths), np.int64)


@inlined_kernel
def extra_holds(
    extras: ExtraConstraints,
    of_pattern: NDArray[np.int32],
    extra: int,
    value: float,
    found: FoundLiterals,
    text: int,
) -> bool:
    """Whether `value`, which for a string dimension stands for the text of that number, passes extra number `extra`.

    `of_pattern` is the literal of each pattern.
    """
    first, last = extras.interval_start[extra], extras.interval_start[extra + 1]
    if first < last:
        inside = False
        for i in range(first, last):
            if extras.low[i] <= value <= extras.high[i]:
                inside = True
                break
        if not inside:
            return False
    for p in range(extras.pattern_start[extra], extras.pattern_start[extra + 1]):
        if has_literal(found, text, of_pattern[p]) == (extras.pattern_kind[p] >= NEGATED):
            return False
    return True


def _starts(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.uint32]:
    starts = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=starts[1:])
    return starts
