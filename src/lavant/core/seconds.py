"""Values for applications, whose times are in seconds and have names that end in `_s`.

The protocol, the journal and the machines count in milliseconds. Names in milliseconds, which these values had before,
go on working in constructors and when they are read, and warn.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import StructMeta

from lavant.core.errors import InvalidValue, LimitExceeded

SECOND_MS = 1000
SECONDS_MAX = 1e9
"""30 years; sockets and locks take no number that is much larger."""
_MS = re.compile(r"_ms(?=$|_min$|_max$)")
_make: Callable[..., Any] = StructMeta.__call__


def seconds_name(name: str) -> str:
    """The name in seconds of a time in milliseconds; other names stay.

    >>> seconds_name("visibility_ms"), seconds_name("backoff_ms_max"), seconds_name("order")
    ('visibility_s', 'backoff_s_max', 'order')
    """
    return _MS.sub("_s", name)


def check_seconds(name: str, value: float, low: float = 0.0, high: float = SECONDS_MAX, hint: str = "") -> None:
    """
    >>> check_seconds("timeout_s", -1.0)
    Traceback (most recent call last):
    lavant.core.errors.InvalidValue: timeout_s must not be negative, nor above 30 years, got -1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidValue(f"{name} must be a number of seconds, got {value!r:.40}")
    if not low <= value <= high:
        lowest = f"must not be below {low:g}" if low else "must not be negative"
        bounds = f"{lowest}, nor above 30 years" if high == SECONDS_MAX else f"must be between {low:g} and {high:.12g}"
        error = LimitExceeded if value > high else InvalidValue
        raise error(f"{name} {bounds}, got {value!r:.40}{hint}")


def in_seconds(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / SECOND_MS


def in_milliseconds(time_s: float | None) -> int | None:
    """
    >>> in_milliseconds(1794895409.048), in_milliseconds(None)
    (1794895409048, None)
    """
    return None if time_s is None else round(time_s * SECOND_MS)


def warn_of_milliseconds(old: str, new: str, *, stacklevel: int) -> None:
    warnings.warn(f"{old} is now {new}, in seconds", DeprecationWarning, stacklevel=stacklevel + 1)


class SecondsMeta(StructMeta):
    """The class of classes whose constructors accept times by their old names."""

    _old: dict[str, str]
    _times_from: int

    def __init__(self, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)
        fields = self.__struct_fields__
        self._old = {old: field for field in fields if (old := _old_name(field)) != field}
        self._times_from = min((fields.index(field) for field in self._old.values()), default=len(fields))

    if not TYPE_CHECKING:  # type checkers know the new names only

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if len(args) > self._times_from:
                first = self.__struct_fields__[self._times_from]
                raise TypeError(f"{self.__name__}: give {first} and what follows by name; times are in seconds")
            if not self._old.keys().isdisjoint(kwargs):
                for old in self._old.keys() & kwargs.keys():
                    _rename(old, self._old[old], kwargs)
            made = _make(self, *args, **kwargs)
            made._check_times()
            return made


class SecondsValue(msgspec.Struct, frozen=True, metaclass=SecondsMeta):
    """A frozen value for applications; give its times by name."""

    def _check_times(self) -> None:
        """Raises `InvalidValue` if a time that an application gave is out of its range."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            new = type(self)._old.get(name)
            if new is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_of_milliseconds(name, new, stacklevel=2)
            return in_milliseconds(getattr(self, new))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return remake, (type(self), *msgspec.structs.astuple(self))


def remake(kind: type[msgspec.Struct], *fields: Any) -> Any:
    return maker(kind)(*fields)


@cache
def maker(kind: type[msgspec.Struct]) -> Callable[..., Any]:
    """Makes values of all fields in their order, without a check: they were in another value before."""
    names = kind.__struct_fields__
    if any(each.kind is each.KEYWORD_ONLY for each in signature(kind).parameters.values()):
        return lambda *fields: _make(kind, **dict(zip(names, fields, strict=True)))
    return partial(_make, kind)


def _old_name(field: str) -> str:
    """
    >>> _old_name("visibility_s"), _old_name("poll_s_max"), _old_name("rate_per_s")
    ('visibility_ms', 'poll_ms_max', 'rate_per_s')
    """
    return re.sub(r"(?<!_per)_s(?=$|_min$|_max$)", "_ms", field)


def _rename(old: str, new: str, arguments: dict[str, Any]) -> None:
    if new in arguments:
        raise InvalidValue(f"give {new} or {old}, not both")
    value = arguments.pop(old)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidValue(f"{old} must be a number of milliseconds, got {value!r:.40}")
    warn_of_milliseconds(old, new, stacklevel=3)
    arguments[new] = in_seconds(value)
