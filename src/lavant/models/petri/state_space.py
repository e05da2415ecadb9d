"""State spaces of small nets: all markings that can be reached, what holds in them, and the trace to where it does not.

The marking of each place is numbered, and a state is the tuple of these numbers. What a transition does depends on the
places that it touches only, so its successors are computed once for each combination of their markings and looked up
from then on. Time is left out: a token can be taken as soon as it is there, so a state space holds every order of
events that some choice of delays allows, and a few that none does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from lavant.core.errors import InvalidValue
from lavant.models.petri.compiled.successor_source import places_of, successor_source
from lavant.models.petri.hierarchy import FlatNet
from lavant.models.petri.language.colours import ListOf, show_marking
from lavant.models.petri.language.expressions import check_drawable
from lavant.models.petri.language.inscriptions import token_count
from lavant.models.petri.strong_components import strong_components

STATES_MAX = 200_000
TOKENS_MAX = 1_000
"""Tokens that a place may gain; a search ends where one gains more, since markings are kept whole."""
CHAINS = 64
"""States whose history is searched for a place that grows for ever."""


class Invariant(msgspec.Struct, frozen=True):
    """Holds in every state: a predicate of the tokens of some places, each as a sorted tuple."""

    name: str
    places: tuple[str, ...]
    holds: Callable[..., bool]


class PathProperty(msgspec.Struct, frozen=True):
    """Holds along every path: a value that changes when transitions occur, and a predicate of it."""

    name: str
    initial: Any
    steps: Mapping[str, Callable[[Any, dict[str, Any]], Any]]
    """By transition: the next value, from the last one and the binding."""
    holds: Callable[[Any], bool]


class TraceStep(msgspec.Struct, frozen=True):
    transition: str
    binding: dict[str, Any]


class Violation(msgspec.Struct, frozen=True):
    """A property that does not hold, with one of the shortest ways there."""

    name: str
    trace: list[TraceStep]
    marking: dict[str, str]


class PlaceBound(msgspec.Struct, frozen=True):
    """Least and greatest number of tokens of a place, and the length of its longest list."""

    least: int
    greatest: int
    longest_list: int | None
    is_growing: bool
    """Whether the greatest was reached in the second half of a search that did not end."""


class StateSpace(msgspec.Struct, frozen=True):
    """What the search found. If it `is_complete`, every state that can be reached was seen."""

    overfull: str | None
    """The place that gained more than `TOKENS_MAX` tokens, which ended the search."""

    states: int
    arcs: int
    is_complete: bool
    bounds: dict[str, PlaceBound]
    unbounded: dict[str, list[TraceStep]]
    """Places that grow for ever, each with a trace whose end can be repeated."""
    dead_transitions: list[str]
    """Transitions that occur in no state that was seen."""
    dead_markings: list[int]
    components: int
    home_markings: int | None
    """States that can always be reached again; None if the search did not end."""
    violations: list[Violation]
    _search: Any = None

    def trace(self, state: int) -> list[TraceStep]:
        """One of the shortest ways from the initial marking to a state."""
        steps: list[TraceStep] = self._search.trace(state)
        return steps

    def marking(self, state: int) -> dict[str, str]:
        """The places of a state that hold tokens, as CPN ML writes them."""
        shown: dict[str, str] = self._search.marking(state)
        return shown


def explore(
    flat: FlatNet,
    *,
    invariants: Sequence[Invariant] = (),
    histories: Sequence[PathProperty] = (),
    states_max: int = STATES_MAX,
    stop_at_violation: bool = False,
) -> StateSpace:
    """Search breadth first, up to `states_max` states."""
    if states_max < 1:
        raise InvalidValue(f"states_max must be positive, got {states_max}")
    _check_properties(flat, invariants, histories)
    search = _Search(flat, invariants, histories)
    search.run(states_max, stop_at_violation)
    return search.result()


def _check_properties(flat: FlatNet, invariants: Sequence[Invariant], histories: Sequence[PathProperty]) -> None:
    for each in invariants:
        if not isinstance(each, Invariant) or not isinstance(each.places, tuple | list) or not callable(each.holds):
            raise InvalidValue(f"{each!r} is no invariant; give Invariant(name, (place, …), function)")
    for history in histories:
        if not isinstance(history, PathProperty) or not isinstance(history.steps, Mapping):
            raise InvalidValue(f"{history!r} is no path property; give PathProperty(name, initial, steps, function)")
        try:
            for name in history.steps:
                flat.transition(name)
        except InvalidValue as error:
            raise InvalidValue(f"path property {history.name!r}: {error}") from None


class _Column:
    """The markings of a place, or the values of a history, by number."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.values: list[Any] = []
        self.seen_at: list[int] = []

    def number(self, value: Any, state: int) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
            self.seen_at.append(state)
        return found


class _Search:
    def __init__(self, flat: FlatNet, invariants: Sequence[Invariant], histories: Sequence[PathProperty]) -> None:
        self.flat, self.histories = flat, histories
        source, self.names = successor_source(flat)
        names: dict[str, Any] = {
            "_bernoulli": _bernoulli,
            "_discrete": _discrete,
            "_check": self._check,
            "_count": token_count,
        }
        exec(compile(source, f"<state space of {flat.name}>", "exec"), names)  # written from checked text
        self.columns = [_Column() for _ in (*flat.places, *histories)]
        self.rules = [self._rule(bit, names[f"e{bit}"]) for bit in range(len(flat.transitions))]
        self.checks = [self._invariant(each) for each in invariants]
        self.checks += [self._of_history(at, each) for at, each in enumerate(histories)]
        levels = sorted({each.transition.priority for each in flat.transitions})
        self.levels = [
            [rule for rule, each in zip(self.rules, flat.transitions, strict=True) if each.transition.priority == level]
            for level in levels
        ]
        initial: list[Any] = [tuple(sorted(token.value for token in place.initial)) for place in flat.places]
        initial += [each.initial for each in histories]
        first = tuple(column.number(value, 0) for column, value in zip(self.columns, initial, strict=True))
        self.numbers: dict[tuple[int, ...], int] = {first: 0}
        self.states = [first]
        self.parents: list[tuple[int, int, Any]] = [(-1, -1, ())]
        self.starts = [0]
        self.targets: list[int] = []
        self.violated: dict[str, int] = {}
        self.is_complete = False
        self.tokens_max = TOKENS_MAX + 2 * sum(len(place.initial) for place in flat.places)
        self.overfull: str | None = None

    def _check(self, place: int, value: Any) -> Any:
        return self.flat.places[place].colour.token(value)

    def _rule(self, bit: int, successors: Callable[..., Any]) -> _Rule:
        flat = self.flat.transitions[bit]
        watching = [
            (len(self.flat.places) + at, partial(self._step, each, each.steps[name]))
            for at, each in enumerate(self.histories)
            for name in each.steps
            if self.flat.transition(name) == bit
        ]
        return _Rule(bit, places_of(flat), watching, successors, self.names[bit])

    def _step(self, history: PathProperty, step: Callable[..., Any], old: Any, binding: dict[str, Any]) -> Any:
        try:
            new = step(old, binding)
            hash(new)
        except Exception as error:  # somebody else's function
            raise InvalidValue(f"{history.name!r} cannot be followed: {type(error).__name__}: {error}") from None
        return new

    def _invariant(self, invariant: Invariant) -> _Check:
        if not invariant.places:
            raise InvalidValue(f"invariant {invariant.name!r} is about no place; name those whose tokens it depends on")
        try:
            places = [self.flat.place(name) for name in invariant.places]
        except InvalidValue as error:
            raise InvalidValue(f"invariant {invariant.name!r}: {error}") from None
        return _Check(invariant.name, places, invariant.holds)

    def _of_history(self, at: int, history: PathProperty) -> _Check:
        return _Check(history.name, [len(self.flat.places) + at], history.holds)

    def run(self, states_max: int, stop_at_violation: bool) -> None:
        states, numbers, targets = self.states, self.numbers, self.targets
        self._verify(0)
        at = 0
        while at < len(states) and not (stop_at_violation and self.violated):
            state = states[at]
            before = len(targets)
            for level in self.levels:
                for rule in level:
                    effects = rule.cache.get(rule.key(state))
                    if effects is None:
                        effects = self._effects(rule, state, at)
                    for binding, changes in effects:
                        copy = list(state)
                        for column, number in changes:
                            copy[column] = number
                        new = tuple(copy)
                        target = numbers.get(new)
                        if target is None:
                            target = numbers[new] = len(states)
                            states.append(new)
                            self.parents.append((at, rule.bit, binding))
                            if self.checks:
                                self._verify(target)
                        targets.append(target)
                if len(targets) > before:
                    break
            self.starts.append(len(targets))
            at += 1
            if len(states) > states_max or self.overfull is not None:
                return
        self.is_complete = at == len(states)

    def _effects(self, rule: _Rule, state: tuple[int, ...], at: int) -> list[Any]:
        """All bindings of a transition in these markings, with the numbers that change."""
        columns = self.columns
        before = [columns[column].values[state[column]] for column in rule.columns]
        try:
            found = rule.successors(*before[: len(rule.places)])
        except (ArithmeticError, LookupError, StopIteration, InvalidValue) as error:
            name = self.flat.transitions[rule.bit].name
            raise InvalidValue(f"transition {name}, {self._after(at)}: {str(error) or 'a list is empty'}") from None
        effects = []
        for binding, after in found:
            values: list[Any] = list(after)
            named = dict(zip(rule.names, binding, strict=True))
            values += [
                step(old, named) for (_, step), old in zip(rule.watching, before[len(rule.places) :], strict=True)
            ]
            changes = tuple(
                (column, columns[column].number(value, at))
                for column, value, old in zip(rule.columns, values, before, strict=True)
                if value != old
            )
            effects.append((binding, changes))
            for place, tokens in zip(rule.places, after, strict=False):
                if len(tokens) > self.tokens_max:
                    self.overfull = self.flat.places[place].name
        rule.cache[rule.key(state)] = effects
        return effects

    def _verify(self, target: int) -> None:
        state = self.states[target]
        for check in self.checks:
            key = check.key(state)
            holds = check.cache.get(key)
            if holds is None:
                values = [self.columns[column].values[state[column]] for column in check.columns]
                holds = check.cache[key] = self._decide(check, values, target)
            if not holds and check.name not in self.violated:
                self.violated[check.name] = target

    def _decide(self, check: _Check, values: list[Any], state: int) -> bool:
        try:
            return bool(check.holds(*values))
        except Exception as error:  # somebody else's function
            said = f"{type(error).__name__}: {error}"
            raise InvalidValue(f"{check.name!r} cannot be decided {self._after(state)}: {said}") from None

    def _after(self, state: int) -> str:
        return f"after {', '.join(step.transition for step in self.trace(state)) or 'nothing'}"

    def trace(self, state: int) -> list[TraceStep]:
        steps: list[TraceStep] = []
        while state > 0:
            state, bit, binding = self.parents[state]
            named = dict(zip(self.names[bit], binding, strict=True))
            steps.append(TraceStep(self.flat.transitions[bit].name, named))
        return steps[::-1]

    def marking(self, state: int) -> dict[str, str]:
        held = zip(self.flat.places, self.columns, self.states[state], strict=False)
        tokens = ((place, column.values[number]) for place, column, number in held)
        return {place.name: show_marking(place.colour, list(each)) for place, each in tokens if each}

    def result(self) -> StateSpace:
        seen = {bit for _, bit, _ in self.parents} | {r.bit for r in self.rules if any(r.cache.values())}
        explored = len(self.starts) - 1
        complete = self.is_complete
        components, terminal = strong_components(self.starts, self.targets) if complete else (0, [])
        names = {check.name: self.violated[check.name] for check in self.checks if check.name in self.violated}
        return StateSpace(
            overfull=self.overfull,
            states=len(self.states),
            arcs=len(self.targets),
            is_complete=complete,
            bounds=self._bounds(),
            unbounded={} if complete else self._unbounded(),
            dead_transitions=[each.name for bit, each in enumerate(self.flat.transitions) if bit not in seen],
            dead_markings=[at for at in range(explored) if self.starts[at] == self.starts[at + 1]],
            components=components,
            home_markings=None if not complete else (terminal[0] if len(terminal) == 1 else 0),
            violations=[Violation(name, self.trace(at), self.marking(at)) for name, at in names.items()],
            _search=self,
        )

    def _bounds(self) -> dict[str, PlaceBound]:
        found, half = {}, len(self.states) // 2
        for place, column in zip(self.flat.places, self.columns, strict=False):
            counts = [len(tokens) for tokens in column.values]
            has_lists = isinstance(place.colour, ListOf)
            lists = [max(map(len, tokens), default=0) if has_lists else 0 for tokens in column.values]
            growing = not self.is_complete and max(column.seen_at[s.index(max(s))] for s in (counts, lists)) > half
            found[place.name] = PlaceBound(min(counts), max(counts), max(lists) if has_lists else None, growing)
        return found

    def _unbounded(self) -> dict[str, list[TraceStep]]:
        """Places that a repeatable part of some path fills.

        If one marking contains another from which it was reached, the path between them can be repeated, and each
        repetition adds the difference. With priorities that need not be so: more tokens may enable something else.
        """
        if len(self.levels) > 1 or self.histories:
            return {}
        found: dict[str, list[TraceStep]] = {}
        for last in range(len(self.states) - 1, max(0, len(self.states) - CHAINS), -1):
            path = self._path(last)
            tokens = self._tokens(last)
            for number, state in enumerate(path[:-1]):
                before = self._tokens(state)
                for at in _growth(before, tokens):
                    name = self.flat.places[at].name
                    if name not in found:
                        end = next(each for each in path[number:] if at in _growth(before, self._tokens(each)))
                        found[name] = self.trace(end)
        return found

    def _path(self, state: int) -> list[int]:
        """The states from the initial one to this one."""
        path = [state]
        while path[-1] > 0:
            path.append(self.parents[path[-1]][0])
        return path[::-1]

    def _tokens(self, state: int) -> list[Any]:
        held = zip(self.flat.places, self.columns, self.states[state], strict=False)
        return [column.values[number] for _, column, number in held]


class _Rule:
    """A transition, with the numbers of the columns that it depends on and changes."""

    def __init__(
        self,
        bit: int,
        places: list[int],
        watching: Sequence[tuple[int, Callable[[Any, dict[str, Any]], Any]]],
        successors: Callable[..., Any],
        names: list[str],
    ) -> None:
        self.bit, self.places, self.watching = bit, places, watching
        self.columns = places + [column for column, _ in watching]
        self.successors, self.names = successors, names
        self.key: Callable[[tuple[int, ...]], Any] = itemgetter(*self.columns)
        self.cache: dict[Any, list[Any]] = {}


class _Check:
    def __init__(self, name: str, columns: list[int], holds: Callable[..., bool]) -> None:
        self.name, self.columns, self.holds = name, columns, holds
        self.key: Callable[[tuple[int, ...]], Any] = itemgetter(*columns)
        self.cache: dict[Any, bool] = {}


def _growth(before: list[Any], after: list[Any]) -> list[int]:
    """Places with more tokens, if every place has at least those that it had."""
    grown = []
    for at, (old, new) in enumerate(zip(before, after, strict=True)):
        if old is not new and old != new:
            if len(new) <= len(old) or Counter(old) - Counter(new):
                return []
            grown.append(at)
    return grown


def _bernoulli(probability: float) -> tuple[bool, ...]:
    check_drawable("bernoulli", probability)
    if probability <= 0:
        return (False,)
    return (True,) if probability >= 1 else (False, True)


def _discrete(least: int, greatest: int) -> range:
    check_drawable("discrete", least, greatest)
    return range(least, greatest + 1)
