"""From what a server refuses with to the error that it stands for."""

from __future__ import annotations

import contextlib

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import FilterSyntaxError, InvalidValue, LavantError, error_class

_MARGIN = "  "


def error_of(refused: Refused) -> LavantError:
    """The error whose class has the name that the refusal carries; a name that this client does not know is told.

    >>> error_of(Refused("LimitExceeded", "the batch has 1001 entries, at most 1000 are allowed"))
    LimitExceeded('the batch has 1001 entries, at most 1000 are allowed')
    """
    if refused.code == FilterSyntaxError.__name__:
        return _syntax_error(refused.reason)
    known = error_class(refused.code)
    if known.__name__ == refused.code:
        with contextlib.suppress(TypeError, AttributeError):  # an error that is made of more than its text
            return known(refused.reason)
    return LavantError(f"{refused.code}: {refused.reason}")


def _syntax_error(reason: str) -> LavantError:
    """Made of what is shown: the problem, and below it the filter's line with a caret under the place.

    >>> print(_syntax_error(str(FilterSyntaxError("price >> 5", 7, "expected a value"))))
    expected a value
      price >> 5
             ^
    """
    *problem, line, caret = ["", "", *reason.split("\n")]
    if not (line.startswith(_MARGIN) and caret.strip() == "^"):
        return InvalidValue(reason)
    return FilterSyntaxError(line[len(_MARGIN) :], len(caret) - 1 - len(_MARGIN), "\n".join(problem[2:]))
