"""Mirrors: values for programs, converted to and from those of the protocol, whose times are in milliseconds.

A mirror has the fields of its original in the same order. `X_ms` is `X_s` in it, and a field whose type is a mirror, an
optional one or a list of them is converted as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from lavant.core.errors import InvalidValue
from lavant.core.seconds import (
    SECOND_MS,
    SecondsValue,
    check_seconds,
    in_milliseconds,
    in_seconds,
    maker,
    seconds_name,
)

OriginalT = TypeVar("OriginalT", bound=msgspec.Struct)
Conversion: TypeAlias = Callable[[Any], Any]
Bounds: TypeAlias = Mapping[str, tuple[int, int]]
"""The least and the largest number of milliseconds, by the name in seconds."""


class Mirror(SecondsValue, Generic[OriginalT], frozen=True):
    """A value of a client, and the class of its original."""

    _bounds_ms: ClassVar[Bounds] = {}
    """Of the times that programs give."""

    def _check_times(self) -> None:
        for name, (least, most) in self._bounds_ms.items():
            value = getattr(self, name)
            if value is not None or name not in _optional(type(self)):
                check_seconds(name, value, least / SECOND_MS, most / SECOND_MS)


MirrorT = TypeVar("MirrorT", bound=Mirror[Any])


@cache
def _optional(kind: type[Mirror[Any]]) -> frozenset[str]:
    """The fields that may be None."""
    return frozenset(name for name, hint in get_type_hints(kind).items() if NoneType in get_args(hint))


def check_types(value: Mirror[Any]) -> None:
    """Raise if a field is of another type than it is declared, before it is compared with anything."""
    for field in msgspec.structs.fields(value):
        given = getattr(value, field.name)
        if isinstance(field.type, type) and issubclass(field.type, Mirror):
            if not isinstance(given, field.type):
                raise InvalidValue(f"{field.name} must be a lavant.{field.type.__name__}, got {given!r:.60}")
            continue
        try:
            msgspec.convert(given, field.type)
        except msgspec.ValidationError as error:
            problem = str(error)[:1].lower() + str(error)[1:]
            raise InvalidValue(f"{field.name} is of the wrong type: {problem}, {given!r:.40}") from None


def from_protocol(kind: type[MirrorT], original: msgspec.Struct) -> MirrorT:
    """The client's value for one of the protocol. Nothing is checked: a server may have other bounds."""
    fields = list(msgspec.structs.astuple(original))
    layout = _layout(kind)
    for place, convert in layout.from_protocol:
        fields[place] = convert(fields[place])
    made: MirrorT = layout.make(*fields)
    return made


def to_protocol(value: Mirror[OriginalT]) -> OriginalT:
    """The value of the protocol for one of the client."""
    fields = list(msgspec.structs.astuple(value))
    layout = _layout(type(value))
    for place, convert in layout.to_protocol:
        fields[place] = convert(fields[place])
    made: OriginalT = layout.make_original(*fields)
    return made


def given(name: str, value: Mirror[OriginalT], kind: type[Mirror[OriginalT]]) -> OriginalT:
    """The value of the protocol for an argument `name`; raises `InvalidValue` if it is not one that may be sent.

    >>> from lavant.client.values.queues import QueueConfig
    >>> given("config", 5, QueueConfig)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: config must be a lavant.QueueConfig, got 5
    """
    if not isinstance(value, kind):
        raise InvalidValue(f"{name} must be a lavant.{kind.__name__}, got {value!r:.60}")
    value._check_times()
    return to_protocol(value)


class _Layout(NamedTuple):
    make: Callable[..., Any]
    make_original: Callable[..., Any]
    from_protocol: list[tuple[int, Conversion]]
    to_protocol: list[tuple[int, Conversion]]


@cache
def _layout(kind: type[Mirror[Any]]) -> _Layout:
    original = original_of(kind)
    theirs, ours = original.__struct_fields__, kind.__struct_fields__
    assert tuple(map(seconds_name, theirs)) == ours, f"{kind.__name__} does not mirror {original.__name__}"
    hints = get_type_hints(kind)
    layout = _Layout(maker(kind), maker(original), [], [])
    for place, (name, mirrored) in enumerate(zip(theirs, ours, strict=True)):
        if name != mirrored:
            layout.from_protocol.append((place, in_seconds))
            layout.to_protocol.append((place, in_milliseconds))
        elif inner := _conversions(hints[mirrored]):
            layout.from_protocol.append((place, inner[0]))
            layout.to_protocol.append((place, inner[1]))
    return layout


def original_of(kind: type[Mirror[Any]]) -> type[msgspec.Struct]:
    """
    >>> from lavant.client.values.queues import Delivery
    >>> original_of(Delivery).__module__
    'lavant.broker.protocol.queues'
    """
    bases: tuple[Any, ...] = kind.__orig_bases__  # type: ignore[attr-defined]
    (original,) = get_args(next(base for base in bases if get_origin(base) is Mirror))
    found: type[msgspec.Struct] = original
    return found


def _conversions(hint: Any) -> tuple[Conversion, Conversion] | None:
    """Of a field of this type, from and to the protocol; None if it holds no mirror."""
    if isinstance(hint, type) and issubclass(hint, Mirror):
        return partial(from_protocol, hint), to_protocol
    if get_origin(hint) is list:
        inner = _conversions(get_args(hint)[0])
        return None if inner is None else (partial(_each, inner[0]), partial(_each, inner[1]))
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        inner = _conversions(get_args(hint)[0])
        return None if inner is None else (partial(_unless_none, inner[0]), partial(_unless_none, inner[1]))
    return None


def _each(convert: Conversion, values: list[Any]) -> list[Any]:
    return [convert(value) for value in values]


def _unless_none(convert: Conversion, value: Any) -> Any:
    return None if value is None else convert(value)
