"""Names and values at the edges of what is allowed, and what the refusal says."""

from __future__ import annotations

import math

import pytest

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.publications.attributes import (
    INTEGER_MAX,
    NAME_LENGTH_MAX,
    STRING_BYTES_MAX,
    AttributeValue,
    check_name,
    check_value,
)


@pytest.mark.parametrize("name", ["a", "class.name", "odd name", 'quo"te', "Ä", "a@b", "x" * NAME_LENGTH_MAX])
def test_a_printable_name_is_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (7, "an attribute name must be a string, got int 7"),
        (None, "an attribute name must be a string, got NoneType None"),
        ("", "an attribute name must not be empty"),
        ("@id", "attribute name '@id' starts with '@', which is kept for @id, @time_ms and @payload"),
        ("a\n", "attribute name 'a\\n' holds a control character or a lone surrogate; remove it"),
        ("\ud800", "attribute name '\\ud800' holds a control character or a lone surrogate; remove it"),
    ],
)
def test_a_refused_name_says_why(name: object, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_name(name)
    assert str(refused.value) == message


def test_a_name_one_character_too_long_is_over_the_limit() -> None:
    with pytest.raises(LimitExceeded, match="has 129 characters, at most 128 are allowed"):
        check_name("x" * (NAME_LENGTH_MAX + 1))


@pytest.mark.parametrize(
    "value",
    ["", "a\0", "\U0010ffff", "x" * STRING_BYTES_MAX, INTEGER_MAX, -INTEGER_MAX, 1e308, -0.0, 5e-324, True, False],
)
def test_a_value_within_the_limits_comes_back_as_it_is(value: AttributeValue) -> None:
    returned = check_value("a", value)
    assert returned is value


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            INTEGER_MAX + 1,
            LimitExceeded,
            "integer 9007199254740993 of attribute 'a' is beyond ±2^53, where doubles skip integers; "
            "send it as a string",
        ),
        (-INTEGER_MAX - 1, LimitExceeded, "integer -9007199254740993 of attribute 'a' is beyond ±2^53"),
        (1 << 10_000, LimitExceeded, "integer of 10001 bits of attribute 'a'"),
        (math.nan, InvalidValue, "attribute 'a' is nan; leave the attribute out where there is no number"),
        (math.inf, InvalidValue, "attribute 'a' is inf; leave the attribute out"),
        (-math.inf, InvalidValue, "attribute 'a' is -inf; leave the attribute out"),
        ("ok\udc00", InvalidValue, "attribute 'a' holds a lone surrogate at character 2"),
        ([1], InvalidValue, "attribute 'a' is of type list; use a string, an integer, a float or a boolean"),
        (None, InvalidValue, "attribute 'a' is of type NoneType; use a string"),
        (b"x", InvalidValue, "attribute 'a' is of type bytes; use a string"),
    ],
)
def test_a_refused_value_says_what_it_was_and_what_to_do(
    value: object, error: type[InvalidValue], message: str
) -> None:
    with pytest.raises(error) as refused:
        check_value("a", value)
    assert str(refused.value).startswith(message)


def test_the_limit_of_a_string_counts_bytes_and_not_characters() -> None:
    check_value("a", "é" * (STRING_BYTES_MAX // 2))
    with pytest.raises(
        LimitExceeded, match="attribute 'a' has 65538 bytes, at most 65536 are allowed; use the payload"
    ):
        check_value("a", "é" * (STRING_BYTES_MAX // 2 + 1))
