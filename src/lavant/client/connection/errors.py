"""Turns a refusal of a server into the error that it names."""

from __future__ import annotations

import contextlib

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import FilterSyntaxError, InvalidValue, LavantError, error_class

_MARGIN = "  "


def error_of(refused: Refused) -> LavantError:
    """Returns an error of the class that the refusal names; `LavantError` if this client has no such class.

    >>> error_of(Refused("LimitExceeded", "the batch has 1001 entries, at most 1000 are allowed"))
    LimitExceeded('the batch has 1001 entries, at most 1000 are allowed')
    """
    if refused.code == FilterSyntaxError.__name__:
        return _syntax_error(refused.reason)
    known = error_class(refused.code)
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
