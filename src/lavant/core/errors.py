"""The one tree of errors. Each says what was wrong, the value, and what to do about it.

LavantError
├── InvalidValue            an attribute, publication or id that cannot be accepted      (also a ValueError)
│   ├── LimitExceeded       well-formed, but larger than an explicit limit allows
│   └── FilterSyntaxError   a filter's text, with the place of the mistake
├── DuplicateSubscription   the id is taken
├── UnknownSubscription     nobody has that id                                           (also a KeyError)
├── CorruptSnapshot         files that are damaged, incomplete, or of another format
├── MissingComponent        something outside of Lavant (Java, a cluster) is not there or does not answer
└── FailedStream            a stream stopped; started again, it goes on from its checkpoint
"""

from __future__ import annotations


class LavantError(Exception):
    """Base of everything that Lavant raises on purpose."""


class InvalidValue(LavantError, ValueError):
    """A value that cannot be accepted."""


class LimitExceeded(InvalidValue):
    """A value that is well-formed but larger than a limit allows; the message names the limit."""


class FilterSyntaxError(InvalidValue):
    """A filter that cannot be read: its text, a caret under the place, and what was expected there."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        self.text = text
        self.position = position
        self.problem = problem
        super().__init__(f"{problem}\n{_point_at(text, position)}")

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, int, str]]:
        return type(self), (self.text, self.position, self.problem)


class DuplicateSubscription(LavantError):
    """A subscription with this id exists already."""


class UnknownSubscription(LavantError, KeyError):
    """No subscription has this id."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


class CorruptSnapshot(LavantError):
    """A snapshot whose files are damaged, incomplete or of another format version."""


class MissingComponent(LavantError):
    """Something outside of Lavant that it needs here is not there, too old, or does not answer."""


class FailedStream(LavantError):
    """A stream stopped; its checkpoint is whole, and it goes on from there when it is started again."""


def _point_at(text: str, position: int, width: int = 76) -> str:
    """The line of `text` around `position` with a caret below it, cut to `width` characters."""
    line_start = text.rfind("\n", 0, position) + 1
    line_end = text.find("\n", position)
    line = text[line_start : line_end if line_end >= 0 else len(text)].replace("\t", " ")
    column = position - line_start
    cut = max(0, min(column - width // 2, len(line) - width))
    shown = line[cut : cut + width]
    return f"  {'…' if cut else ''}{shown}\n  {' ' * (column - cut + (1 if cut else 0))}^"
