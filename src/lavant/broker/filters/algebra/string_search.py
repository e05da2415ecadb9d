"""Finds a shortest string that lies in given intervals and fits given patterns, in a product of automata.

Each test of a constraint is a small automaton that reads a string character by character:

    suffix, contains   how much of the literal the end of the string matches (Knuth, Morris, Pratt)
    intervals          which prefix of an interval's end the string is; once it is a prefix of none, it and all its
                       extensions lie on the same side of every end, so inside or outside for good

Characters that occur in no literal and no end behave alike as long as they lie between the same occurring ones, so one
per gap represents all. The rest is a finite graph, searched breadth first from the empty string.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator

from lavant.broker.filters.algebra.constraints import Pattern, PatternKind, Strings
from lavant.broker.filters.algebra.intervals import Intervals, contains

WORK_MAX = 200_000
"""Steps of single automata per question: some hundredths of a second. Real filters take some hundreds."""

_SURROGATES = range(0xD800, 0xE000)
_DEAD = -1
_INSIDE = -2


class SearchBudget:
    """The work left for all searches of one question: parsing a filter, or comparing two, may need many."""

    __slots__ = ("left",)

    def __init__(self, work_max: int = WORK_MAX) -> None:
        self.left = work_max


def search(strings: Strings, budget: SearchBudget) -> str | bool | None:
    """A string that fits; False if there is none; None if the budget ran out."""
    if budget.left <= 0:
        return None
    ends = {end for interval in strings.intervals for end in interval if end is not None}
    alphabet = _representatives({*"".join(ends), *"".join(pattern.literal for pattern in strings.patterns)})
    order = _Order(strings.intervals, ends)
    patterns = [_Scanner(pattern) for pattern in strings.patterns]
    start = (0, *(0 for _ in patterns))
    reached: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    waiting = deque([start])
    moves = len(alphabet) * (1 + len(patterns))
    while waiting:
        state = waiting.popleft()
        if order.accepts(state[0]) and all(p.accepts(s) for p, s in zip(patterns, state[1:], strict=True)):
            return _spell(reached, state)
        budget.left -= moves
        if budget.left <= 0:
            return None
        for character in alphabet:
            following = _step(order, patterns, state, character)
            if following is not None and following not in reached:
                reached[following] = (state, character)
                waiting.append(following)
    return False


def _step(order: _Order, patterns: list[_Scanner], state: tuple[int, ...], character: str) -> tuple[int, ...] | None:
    following = [order.after(state[0], character)]
    if following[0] == _DEAD:
        return None
    for pattern, progress in zip(patterns, state[1:], strict=True):
        after = pattern.after(progress, character)
        if after == _DEAD:
            return None
        following.append(after)
    return tuple(following)


def _spell(reached: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None], state: tuple[int, ...]) -> str:
    characters: list[str] = []
    while (step := reached[state]) is not None:
        state, character = step
        characters.append(character)
    return "".join(reversed(characters))


def _representatives(mentioned: Iterable[str]) -> list[str]:
    """The occurring characters and one of each gap between them, in order; never a surrogate."""
    return sorted({*mentioned, *_gaps(sorted(map(ord, mentioned)))})


def _gaps(mentioned: list[int]) -> Iterator[str]:
    following = 0
    for code in [*mentioned, sys.maxunicode + 1]:
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following < code:
            yield chr(following)
        following = code + 1


class _Order:
    """The position of the string among the ends of the intervals. States ≥ 0 are prefixes of ends, 0 the empty one."""

    def __init__(self, intervals: Intervals[str], ends: set[str]) -> None:
        prefixes = {end[:length] for end in ends for length in range(1, len(end) + 1)}
        self._prefixes = ["", *sorted(prefixes)]
        self._numbers = {prefix: number for number, prefix in enumerate(self._prefixes)}
        self._intervals = intervals
        self._accepting = [contains(intervals, prefix) for prefix in self._prefixes]
        self._known: dict[tuple[int, str], int] = {}

    def after(self, state: int, character: str) -> int:
        if state == _INSIDE:
            return _INSIDE
        known = self._known.get((state, character))
        if known is None:
            string = self._prefixes[state] + character
            known = self._numbers.get(string, _INSIDE if contains(self._intervals, string) else _DEAD)
            self._known[state, character] = known
        return known

    def accepts(self, state: int) -> bool:
        return state == _INSIDE or self._accepting[state]


class _Scanner:
    """How many characters of the literal the end of the string matches."""

    def __init__(self, pattern: Pattern) -> None:
        self._literal = pattern.literal
        self._negated = pattern.negated
        self._latches = pattern.kind is PatternKind.CONTAINS
        # Transitions by character; a missing one leads to 0. After a mismatch the scan continues as if it had
        # read only what still matches, which is `behind`: the state after the same characters without the
        # first.
        self._steps: list[dict[str, int]] = [{self._literal[0]: 1}]
        behind = 0
        for matched, character in enumerate(self._literal[1:], start=1):
            self._steps.append({**self._steps[behind], character: matched + 1})
            behind = self._steps[behind].get(character, 0)
        self._steps.append(self._steps[behind])

    def after(self, matched: int, character: str) -> int:
        whole = len(self._literal)
        if self._latches and matched == whole:
            return whole
        following = self._steps[matched].get(character, 0)
        return _DEAD if self._latches and self._negated and following == whole else following

    def accepts(self, matched: int) -> bool:
        return (matched == len(self._literal)) is not self._negated
