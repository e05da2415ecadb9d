"""Turns a refusal of a server into the error that it names."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import AtOtherBroker, FilterSyntaxError, InvalidValue, LavantError, error_class

NO_REQUEST = "a frame holds no request"
"""How a server refuses a request whose fields have wrong types."""
_MARGIN = "  "


def in_words_of_the_caller(request: msgspec.Struct, error: InvalidValue) -> InvalidValue:
    """The error for a request that the server could not read, which names the argument."""
    found = wrong_argument(request) if str(error).startswith(NO_REQUEST) else None
    return error if found is None else found


def wrong_argument(request: msgspec.Struct) -> InvalidValue | None:
    """The error that names an argument of a wrong type, if there is one.

    >>> from lavant.broker.protocol.queues import Receive
    >>> wrong_argument(Receive("orders", "two"))
    InvalidValue("count is of the wrong type: expected `int`, got `str`, 'two'")
    """
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=type(request))
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        problem, _, path = str(error).partition(" - at ")
        name, value = _argument(request, path)
        shown = "" if value is None else f", {value!r:.60}"
        return InvalidValue(f"{name} is of the wrong type: {problem[:1].lower()}{problem[1:]}{shown}")
    return None


def _argument(request: msgspec.Struct, path: str) -> tuple[str, Any]:
    """The innermost field on a path such as `$[2][...][0]`, and its value if the path leads to one value only."""
    name = "an argument"
    value: Any = request
    for index in re.findall(r"\[(\d+|\.\.\.)\]", path):
        if index == "...":
            value = next(iter(value), None) if isinstance(value, list) and len(value) == 1 else None
        elif isinstance(value, msgspec.Struct):
            config = value.__struct_config__
            name = value.__struct_fields__[int(index) - (config.tag is not None)]
            value = getattr(value, name)
    return name, None if isinstance(value, msgspec.Struct) else value


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
