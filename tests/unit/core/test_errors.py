"""Errors point at the mistake, and survive being sent to another process."""

from __future__ import annotations

import pickle
import re

import pytest

from lavant.core import errors
from lavant.core.errors import (
    ConnectionLost,
    CorruptSnapshot,
    DuplicateSubscription,
    FilterSyntaxError,
    InvalidValue,
    LavantError,
    LimitExceeded,
    ServerUnreachable,
    UnknownSubscription,
    error_class,
)


@pytest.mark.parametrize(
    ("error", "parents"),
    [
        (InvalidValue, (LavantError, ValueError)),
        (LimitExceeded, (InvalidValue,)),
        (FilterSyntaxError, (InvalidValue,)),
        (DuplicateSubscription, (LavantError,)),
        (UnknownSubscription, (LavantError, KeyError)),
        (CorruptSnapshot, (LavantError,)),
    ],
)
def test_every_error_hangs_where_the_tree_shows_it(error: type[Exception], parents: tuple[type, ...]) -> None:
    assert all(issubclass(error, parent) for parent in parents)


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    path: list[type[LavantError]] = []
    drawn = set()
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z][A-Za-z]+)(  |$)", line)
        if found is None or error_class(found[2]).__name__ != found[2]:
            continue
        level, error = len(found[1]) // 4, error_class(found[2])
        assert level == 0 or path[level - 1] in error.__mro__[1:], line
        path[level:] = [error]
        drawn.add(error)
    assert drawn == {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, LavantError)}


@pytest.mark.parametrize("error", [ConnectionLost, ServerUnreachable])
def test_errors_of_connections_are_those_of_python_too(error: type[LavantError]) -> None:
    raised = pickle.loads(pickle.dumps(error("the server hung up")))
    assert (type(raised), str(raised)) == (error, "the server hung up")
    assert isinstance(raised, ConnectionError)


def test_an_unknown_subscription_reads_as_a_sentence_and_not_as_a_quoted_key() -> None:
    assert str(UnknownSubscription("no subscription has id 7")) == "no subscription has id 7"


def test_a_caret_stands_below_the_mistake() -> None:
    assert str(FilterSyntaxError("a >> 1", 3, "expected a value")) == "expected a value\n  a >> 1\n     ^"


def test_the_line_of_the_mistake_is_shown_and_no_other() -> None:
    text = "a = 1\nand b ! 2\nand c = 3"
    assert str(FilterSyntaxError(text, text.index("!"), "what?")) == "what?\n  and b ! 2\n        ^"


@pytest.mark.parametrize("position", [0, 30, 150, 299, 300])
def test_a_long_line_is_cut_around_the_mistake(position: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(300))
    _, line, caret = str(FilterSyntaxError(text, position, "what?")).split("\n")
    assert len(line) <= 2 + 1 + 76
    below = line[len(caret) - 1 : len(caret)]
    assert below == text[position : position + 1]


def test_a_syntax_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(FilterSyntaxError("a >", 3, "expected a value")))
    assert isinstance(error, FilterSyntaxError)
    assert (error.text, error.position, error.problem) == ("a >", 3, "expected a value")
    assert str(error) == "expected a value\n  a >\n     ^"
