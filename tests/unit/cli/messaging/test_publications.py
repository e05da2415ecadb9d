"""Publications as commands get them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lavant.cli.messaging.publications import attributes_of, from_lines, gathered
from lavant.cli.messaging.sub import _value
from lavant.core.errors import InvalidValue
from lavant.core.publications.publication import Publication


@pytest.mark.parametrize(
    "value", ["IBM", "", "007", "1", "-1.5", "true", "null", "[1]", '"x"', "a=b", "NaN", 1, -2.5, True]
)
def test_what_is_printed_is_read_as_it_was(value: str | float) -> None:
    assert attributes_of([f"a={_value(value)}"]) == {"a": value}


def test_lines_are_counted_with_the_blank_ones() -> None:
    found = list(from_lines([b'{"a": 1}\n', b"\n", b"x\n", b'{"a": 2, "@id": "i"}']))
    assert [each.number for each in found] == [1, 3, 4]
    assert isinstance(found[1].content, InvalidValue)
    assert found[2].content == Publication(attributes={"a": 2}, id=found[2].content.id)  # type: ignore[union-attr]


def test_what_is_there_comes_together_and_nothing_waits_for_more() -> None:
    may_go_on = threading.Event()

    def values() -> Iterator[int]:
        yield 1
        assert may_go_on.wait(10)
        yield from range(2, 100)

    batches = gathered(values(), 10)
    assert next(batches) == [1]
    may_go_on.set()
    rest = list(batches)
    assert [value for batch in rest for value in batch] == list(range(2, 100))
    assert max(map(len, rest)) <= 10


def test_what_goes_wrong_while_reading_is_raised_after_what_came_before() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise InvalidValue("broken")

    batches = gathered(values(), 10)
    assert next(batches) == [1]
    with pytest.raises(InvalidValue, match="broken"):
        next(batches)
