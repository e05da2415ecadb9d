"""Colour sets: the types of tokens, as in CPN ML, and how their values are written and checked.

A token is a plain Python value, because the simulator handles millions of them: unit is `()`, an enumeration's value is
a string, products, records and lists are tuples. Records and lists may be written as dicts and lists; `token` converts.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from keyword import iskeyword
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

    def mistake(self) -> str | None:
        """What is wrong with the declaration itself; asked before anything else of a colour set."""
        return None

    def _refuse(self, value: Any) -> InvalidValue:
        return InvalidValue(f"{value!r} is no value of colour set {self.name} = {self.declaration()}")


class Token(msgspec.Struct, frozen=True):
    """A token of a marking, with its time stamp if that lies ahead: nothing can take it yet."""

    value: Any
    time: float | None = None


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

    def mistake(self) -> str | None:
        if self.between is None:
            return None
        if _is_sequence(self.between) and [type(each) for each in self.between] == [int, int] and self.values() != []:
            return None
        return f"{self.between!r} are no bounds; give two whole numbers, the lower one first"

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
        text = ml_number(f"{token:.6g}")
        return text if any(sign in text for sign in ".e") else f"{text}.0"

    def declaration(self) -> str:
        return "real"


class String(ColourSet, frozen=True):
    def token(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise self._refuse(value)
        return value

    def show(self, token: Any) -> str:
        return ml_text(token)

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

    def mistake(self) -> str | None:
        if not _is_sequence(self.names):
            return f"{self.names!r} are no values; give a tuple of names, as in ('red', 'green')"
        return None if self.names else "an enumeration has one value or more"

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

    def mistake(self) -> str | None:
        if not _is_sequence(self.of):
            return f"{self.of!r} are no parts; give a tuple of colour sets"
        return None if len(self.of) > 1 else "a product has two parts or more"

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

    def mistake(self) -> str | None:
        if not _is_sequence(self.fields) or not all(_is_sequence(each) and len(each) == 2 for each in self.fields):
            return f"{self.fields!r} are no fields; give a tuple of pairs of a name and a colour set"
        names = [name for name, _ in self.fields]
        for name in names:
            if not is_name(name):
                return f"{name!r} is no name for a field"
            if names.count(name) > 1:
                return f"it has two fields {name!r}"
        return None if names else "a record has one field or more"

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


def alike(one: ColourSet, other: ColourSet) -> bool:
    """Whether two colour sets are the same type. As in CPN ML, names, time stamps and bounds do not matter."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Enumeration) and isinstance(other, Enumeration):
        return one.names == other.names
    if isinstance(one, RecordOf) and isinstance(other, RecordOf):
        names = tuple(name for name, _ in one.fields) == tuple(name for name, _ in other.fields)
        return names and all(map(alike, one.parts(), other.parts()))
    if isinstance(one, ListOf) and isinstance(other, ListOf) and NOTHING in (one.of, other.of):
        return True
    return len(one.parts()) == len(other.parts()) and all(map(alike, one.parts(), other.parts()))


def accepts(wanted: ColourSet, given: ColourSet) -> bool:
    """Whether an expression of one colour set may stand where another one is wanted: also an integer for a real."""
    return (isinstance(wanted, Real) and isinstance(given, Int)) or alike(wanted, given)


def is_name(text: object) -> bool:
    """Whether an inscription can use it as a name."""
    return isinstance(text, str) and text.isidentifier() and not iskeyword(text)


def ml_text(text: str) -> str:
    """A string as CPN ML writes it.

    >>> print(ml_text('a "b"'))
    "a \\"b\\""
    """
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return f'"{text}"'


def ml_number(text: str) -> str:
    """A number as CPN ML writes it.

    >>> ml_number("-1e+16"), ml_number("1e-09")
    ('~1e16', '1e~09')
    """
    return text.replace("e+", "e").replace("-", "~")


def show_marking(colour: ColourSet, tokens: list[Any]) -> str:
    """A multiset as CPN ML writes it, from values or from tokens.

    >>> show_marking(Int("INT"), [3, 1, 3])
    '1`1++2`3'
    >>> show_marking(Int("INT", timed=True), [Token(3, 0.0), Token(2, 1.5)])
    '1`3@0.0+++1`2@1.5'
    """
    counts: dict[tuple[float, Any], int] = {}
    for each in tokens:
        key = (-1.0 if each.time is None else each.time, each.value) if isinstance(each, Token) else (-1.0, each)
        counts[key] = counts.get(key, 0) + 1
    stamp = Real("REAL").show
    shown = [
        f"{count}`{colour.show(value)}{f'@{stamp(time)}' if time >= 0 else ''}"
        for (time, value), count in sorted(counts.items())
    ]
    return ("+++" if counts and min(counts)[0] >= 0 else "++").join(shown)


def _is_sequence(given: object) -> bool:
    return isinstance(given, tuple | list)


def _combinations(parts: tuple[ColourSet, ...]) -> list[Any] | None:
    each = [part.values() for part in parts]
    if any(values is None for values in each) or math.prod(len(values or ()) for values in each) > VALUES_MAX:
        return None
    return list(itertools.product(*(values or () for values in each)))


NOTHING = Unit("nothing")
"""What an empty list holds, until something else says."""
