"""Arguments and fields of which only a few values are allowed: whatever refuses another one names it, and these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import inspect

from lavant.core.errors import InvalidValue

_PART = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")


def either(allowed: Iterable[object]) -> str:
    """
    >>> either(["running", "failed", "cancelled"])
    "'running', 'failed' or 'cancelled'"
    """
    *others, last = map(repr, allowed)
    return f"{', '.join(others)} or {last}" if others else last


def check_choice(name: str, value: object, allowed: Iterable[object]) -> None:
    """
    >>> check_choice("order", "sideways", ["out-of-order", "in-order"])
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: order must be 'out-of-order' or 'in-order', got 'sideways'
    """
    allowed = list(allowed)
    if value not in allowed:
        raise InvalidValue(f"{name} must be {either(allowed)}, got {value!r:.60}")


def with_choices(error: Exception, kind: Any) -> str:
    """The text of an error of msgspec about a value of this type, with the allowed values if there are only a few.

    >>> import msgspec
    >>> from typing import Literal
    >>> kind = dict[str, list[Literal["up", "down"]]]
    >>> try:
    ...     msgspec.convert({"a": ["up", "left"]}, kind)
    ... except msgspec.ValidationError as error:
    ...     print(with_choices(error, kind))
    Invalid enum value 'left', expected 'down' or 'up' - at `$[...][1]`
    """
    allowed = choices_of(error, kind)
    if not allowed:
        return str(error)
    said, at, path = str(error).partition(" - at ")
    return f"{said}, expected {either(allowed)}{at}{path}"


def choices_of(error: Exception, kind: Any) -> list[Any]:
    """The values that are allowed where an error of msgspec found another one; none if it is about something else."""
    said, _, path = str(error).partition(" - at ")
    return _allowed(inspect.type_info(kind), _PART.findall(path)) if said.startswith("Invalid enum value") else []


def _allowed(kind: inspect.Type, path: list[tuple[str, str]]) -> list[Any]:
    """The values that a type allows at a path such as `$.jobs[...].join`, or none if it is not about some."""
    if isinstance(kind, inspect.Metadata):
        return _allowed(kind.type, path)
    if isinstance(kind, inspect.UnionType):
        return [value for each in kind.types for value in _allowed(each, path)]
    if not path:
        if isinstance(kind, inspect.LiteralType):
            return list(kind.values)
        return [each.value for each in kind.cls] if isinstance(kind, inspect.EnumType) else []
    (name, index), *rest = path
    if isinstance(kind, inspect.StructType):
        place = int(index) - (kind.tag is not None) if index.isdecimal() else None
        found = [each for number, each in enumerate(kind.fields) if name == each.encode_name or number == place]
        return [value for each in found for value in _allowed(each.type, rest)]
    if isinstance(kind, inspect.DictType):
        return _allowed(kind.value_type, rest)
    if isinstance(kind, inspect.TupleType) and index.isdecimal():
        return _allowed(kind.item_types[int(index)], rest)
    return _allowed(kind.item_type, rest) if isinstance(kind, inspect.CollectionType) else []
