"""Colour sets: the types of tokens, as in CPN ML, and how their values are written and checked.

A token is a plain Python value, because the simulator handles millions of them: unit is `()`, an enumeration's value is
a string, products, records and lists are tuples. Records and lists may be written as dicts and lists; `token` converts.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from typing import Any

import msgspec

from lavant.core.errors import InvalidValue

VALUES_MAX = 1_000
"""The values of larger colour sets are not enumerated."""


class _Timing(msgspec.Struct, frozen=True, kw_only=True):
    timed: bool = False


class ColourSet(_Timing, frozen=True):
    """A type of tokens. Those of a `timed` colour set carry a time stamp: nothing can take them before."""

    name: str

    @abstractmethod
    def token(self, value: Any) -> Any:
        """The value as a token of this colour set, or InvalidValue."""

    @abstractmethod
    def show(self, token: Any) -> str:
        """The token as CPN ML writes it."""

    def values(self) -> list[Any] | None:
        """All values, in order, or None if there are more than `VALUES_MAX`."""
        return None

    @abstractmethod
    def declaration(self) -> str:
        """The right-hand side of the declaration in CPN ML, without `timed`."""

    def parts(self) -> tuple[ColourSet, ...]:
        """The colour sets of which this one consists."""
        return ()

    def _refuse(self, value: Any) -> InvalidValue:
        return InvalidValue(f"{value!r} is no value of colour set {self.name} = {self.declaration()}")


class Unit(ColourSet, frozen=True):
    """One value, `()`: a token without information."""

    def token(self, value: Any) -> Any:
        if value != ():
            raise self._refuse(value)
        return ()

    def show(self, token: Any) -> str:
        return "()"

    def values(self) -> list[Any]:
        return [()]

    def declaration(self) -> str:
        return "unit"


class Bool(ColourSet, frozen=True):
    def token(self, value: Any) -> Any:
        if not isinstance(value, bool):
            raise self._refuse(value)
        return value

    def show(self, token: Any) -> str:
        return "true" if token else "false"

    def values(self) -> list[Any]:
        return [False, True]

    def declaration(self) -> str:
        return "bool"


class Int(ColourSet, frozen=True):
    """Integers, all of them or those `between` two bounds, both included."""

    between: tuple[int, int] | None = None

    def token(self, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._refuse(value)
        if self.between is not None and not self.between[0] <= value <= self.between[1]:
            raise self._refuse(value)
        return value

    def show(self, token: Any) -> str:
        return str(token).replace("-", "~")

    def values(self) -> list[Any] | None:
        if self.between is None or self.between[1] - self.between[0] >= VALUES_MAX:
            return None
        return list(range(self.between[0], self.between[1] + 1))

    def declaration(self) -> str:
        if self.between is None:
            return "int"
        low, high = map(self.show, self.between)
        return f"int with {low}..{high}"


class Real(ColourSet, frozen=True):
    def token(self, value: Any) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise self._refuse(value)
        return float(value)

    def show(self, token: Any) -> str:
        text = f"{token:.6g}".replace("-", "~")
        return text if any(sign in text for sign in ".e") else f"{text}.0"

    def declaration(self) -> str:
        return "real"


class String(ColourSet, frozen=True):
    def token(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise self._refuse(value)
        return value

    def show(self, token: Any) -> str:
        escaped = token.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def declaration(self) -> str:
        return "string"


class Enumeration(ColourSet, frozen=True):
    """Named values: `Enumeration("Visibility", ("visible", "invisible"))`."""

    names: tuple[str, ...]

    def token(self, value: Any) -> Any:
        if value not in self.names:
            raise self._refuse(value)
        return value

    def show(self, token: Any) -> str:
        return str(token)

    def values(self) -> list[Any]:
        return list(self.names)

    def declaration(self) -> str:
        return f"with {' | '.join(self.names)}"


class Product(ColourSet, frozen=True):
    """Tuples: `Product("IdxVis", (INT, VISIBILITY))`."""

    of: tuple[ColourSet, ...]

    def token(self, value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(self.of):
            raise self._refuse(value)
        return tuple(part.token(each) for part, each in zip(self.of, value, strict=True))

    def show(self, token: Any) -> str:
        return f"({','.join(part.show(each) for part, each in zip(self.of, token, strict=True))})"

    def values(self) -> list[Any] | None:
        return _combinations(self.of)

    def declaration(self) -> str:
        return f"product {' * '.join(part.name for part in self.of)}"

    def parts(self) -> tuple[ColourSet, ...]:
        return self.of


class RecordOf(ColourSet, frozen=True):
    """Named fields: `RecordOf("Msg", (("id", INT), ("AT", REAL)))`."""

    fields: tuple[tuple[str, ColourSet], ...]

    def token(self, value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {name for name, _ in self.fields}:
            value = tuple(value[name] for name, _ in self.fields)
        if not isinstance(value, tuple) or len(value) != len(self.fields):
            raise self._refuse(value)
        return tuple(part.token(each) for (_, part), each in zip(self.fields, value, strict=True))

    def show(self, token: Any) -> str:
        shown = (f"{name}={part.show(each)}" for (name, part), each in zip(self.fields, token, strict=True))
        return "{" + ",".join(shown) + "}"

    def values(self) -> list[Any] | None:
        return _combinations(self.parts())

    def declaration(self) -> str:
        return f"record {' * '.join(f'{name}: {part.name}' for name, part in self.fields)}"

    def parts(self) -> tuple[ColourSet, ...]:
        return tuple(part for _, part in self.fields)

    def position(self, field: str) -> int | None:
        return next((at for at, (name, _) in enumerate(self.fields) if name == field), None)


class ListOf(ColourSet, frozen=True):
    """Lists of one colour set: `ListOf("Msgs", MSG)`."""

    of: ColourSet

    def token(self, value: Any) -> Any:
        if not isinstance(value, tuple | list):
            raise self._refuse(value)
        return tuple(self.of.token(each) for each in value)

    def show(self, token: Any) -> str:
        return f"[{','.join(map(self.of.show, token))}]"

    def declaration(self) -> str:
        return f"list {self.of.name}"

    def parts(self) -> tuple[ColourSet, ...]:
        return (self.of,)


def accepts(wanted: ColourSet, given: ColourSet) -> bool:
    """Whether an expression of one colour set may stand where another one is wanted.

    Names and time stamps do not matter, as in CPN ML. An integer may stand for a real number.
    """
    if isinstance(wanted, Real) and isinstance(given, Int):
        return True
    if type(wanted) is not type(given):
        return False
    if isinstance(wanted, Enumeration) and isinstance(given, Enumeration):
        return wanted.names == given.names
    if isinstance(wanted, RecordOf) and isinstance(given, RecordOf):
        names = tuple(name for name, _ in wanted.fields) == tuple(name for name, _ in given.fields)
        return names and all(map(accepts, wanted.parts(), given.parts()))
    if isinstance(wanted, ListOf) and isinstance(given, ListOf) and NOTHING in (wanted.of, given.of):
        return True
    return len(wanted.parts()) == len(given.parts()) and all(map(accepts, wanted.parts(), given.parts()))


def show_marking(colour: ColourSet, tokens: list[Any]) -> str:
    """A multiset as CPN ML writes it.

    >>> show_marking(Int("INT"), [3, 1, 3])
    '1`1++2`3'
    """
    counts: dict[Any, int] = {}
    for token in sorted(tokens):
        counts[token] = counts.get(token, 0) + 1
    return "++".join(f"{count}`{colour.show(token)}" for token, count in counts.items())


def _combinations(parts: tuple[ColourSet, ...]) -> list[Any] | None:
    each = [part.values() for part in parts]
    if any(values is None for values in each) or math.prod(len(values or ()) for values in each) > VALUES_MAX:
        return None
    return list(itertools.product(*(values or () for values in each)))


NOTHING = Unit("nothing")
"""What an empty list holds, until something else says."""
