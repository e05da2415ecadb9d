"""Errors in the words of the caller: an argument that cannot be sent or read, and what a server refuses."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from lavant.broker.protocol.frames import NO_REQUEST
from lavant.broker.protocol.queues import Refused
from lavant.core.errors import AtOtherBroker, FilterSyntaxError, InvalidValue, LavantError, error_class
from lavant.core.frames import append_frame
from lavant.core.validation.choices import choices_of, either

UNENCODABLE = (TypeError, OverflowError, UnicodeEncodeError, RecursionError)
"""What an encoder raises for values of an application."""
_MARGIN = "  "


def append_request(buffer: bytearray, number: int, request: msgspec.Struct) -> None:
    """Append a request to a buffer of frames. Raises an error that names the argument, if one cannot be sent."""
    try:
        append_frame(buffer, number, request)
    except UNENCODABLE as error:
        found = wrong_argument(request)
        raise InvalidValue(f"the request cannot be sent: {error}") if found is None else found from None


def refused_request(request: msgspec.Struct, refused: Refused) -> LavantError:
    """The error of a refusal; it names the argument if the server could not read one."""
    if refused.reason.startswith(NO_REQUEST):
        found = wrong_argument(request)
        if found is not None:
            return found
    return error_of(refused)


def wrong_argument(request: msgspec.Struct) -> InvalidValue | None:
    """The error that names an argument of a wrong type, if there is one.

    >>> from lavant.broker.protocol.queues import Receive
    >>> wrong_argument(Receive("orders", "two"))
    InvalidValue("count is of the wrong type: expected `int`, got `str`, 'two'")
    >>> wrong_argument(Receive("orders", 2**65))
    InvalidValue("count cannot be sent: can't serialize ints < -2**63 or > 2**64 - 1, got 36893488147419103232")
    """
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=type(request))
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at ")
        name, value, expected = _argument(request, path)
        allowed = choices_of(error, type(request))
        if allowed:
            return InvalidValue(f"{name} must be {either(allowed)}, got {value!r:.60}")
        problem = (
            problem.replace("`array`", f"`{expected}`", 1).replace("`array`", "`list`").replace("`object`", "`dict`")
        )
        shown = "" if value is None else f", {value!r:.60}"
        return InvalidValue(f"{name} is of the wrong type: {_lower(problem)}{shown}")
    except UNENCODABLE as error:
        name, value = _unencodable("an argument", request)
        return InvalidValue(f"{name} cannot be sent: {_lower(str(error))}, got {value!r:.60}")
    return None


def _argument(request: msgspec.Struct, path: str) -> tuple[str, Any, str]:
    """The innermost field on a path such as `$[2][...][0]`, its value if the path leads to one value only, and the
    class that its annotation names, or else `list`."""
    name, expected = "an argument", "list"
    value: Any = request
    for index in re.findall(r"\[(\d+|\.\.\.)\]", path):
        if index == "...":
            value = next(iter(value), None) if isinstance(value, list) and len(value) == 1 else None
        elif isinstance(value, msgspec.Struct):
            config = value.__struct_config__
            field = msgspec.structs.fields(value)[int(index) - (config.tag is not None)]
            name, value = field.name, getattr(value, field.name)
            is_struct = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
            expected = field.type.__name__ if is_struct else "list"
        elif isinstance(value, list | tuple):
            value = value[int(index)]
    return name, None if isinstance(value, msgspec.Struct) else value, expected


def _unencodable(name: str, value: Any) -> tuple[str, Any]:
    """The innermost field that cannot be encoded, and its value."""
    if isinstance(value, msgspec.Struct):
        inner = [(each, getattr(value, each)) for each in value.__struct_fields__]
    else:
        inner = [(name, each) for each in value] if isinstance(value, list | tuple) else []
    for field, each in inner:
        try:
            msgspec.msgpack.encode(each)
        except UNENCODABLE:
            return _unencodable(field, each)
    return name, value


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def error_of(refused: Refused) -> LavantError:
    """Returns an error of the class that the refusal names; `LavantError` if this client has no such class.

    >>> error_of(Refused("LimitExceeded", "the batch has 1001 entries, at most 1000 are allowed"))
    LimitExceeded('the batch has 1001 entries, at most 1000 are allowed')
    """
    if refused.code == FilterSyntaxError.__name__:
        return _syntax_error(refused.reason)
    known = error_class(refused.code)
    if issubclass(known, AtOtherBroker):
        return known(refused.reason, refused.address)
    if known.__name__ == refused.code:
        with contextlib.suppress(TypeError, AttributeError):  # a class that needs more than the text
            return known(refused.reason)
    return LavantError(f"{refused.code}: {refused.reason}")


def _syntax_error(reason: str) -> LavantError:
    """Parses the text of a syntax error: the problem, then the line of the filter, then a caret at the position.

    >>> print(_syntax_error(str(FilterSyntaxError("price >> 5", 7, "expected a value"))))
    expected a value
      price >> 5
             ^
    """
    *problem, line, caret = ["", "", *reason.split("\n")]
    if not (line.startswith(_MARGIN) and caret.strip() == "^"):
        return InvalidValue(reason)
    return FilterSyntaxError(line[len(_MARGIN) :], len(caret) - 1 - len(_MARGIN), "\n".join(problem[2:]))
