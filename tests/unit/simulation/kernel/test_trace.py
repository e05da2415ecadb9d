"""Lines of a trace, their digest, and the last of them."""

from __future__ import annotations

import hashlib
from io import StringIO

import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.trace import VALUE_CHARACTERS_MAX, Trace, shown


def filled(lines: int, *files: StringIO, kept: int = 10) -> Trace:
    trace = Trace(*files, kept=kept)
    for number in range(lines):
        trace.add(number * 1_000_001, f"host does {number}")
    return trace


def test_a_line_has_seconds_of_virtual_time_first() -> None:
    assert filled(3).last(2) == ["1.000001 host does 1", "2.000002 host does 2"]


def test_all_lines_go_to_the_files_and_into_the_digest() -> None:
    file, other = StringIO(), StringIO()
    trace = filled(1000, file, other)
    digest = trace.digest()
    assert file.getvalue() == other.getvalue()
    assert file.getvalue().count("\n") == trace.lines == 1000
    assert digest == hashlib.blake2b(file.getvalue().encode(), digest_size=16).hexdigest()


def test_the_digest_tells_the_smallest_difference() -> None:
    one, other = filled(300), filled(300)
    assert one.digest() == other.digest()
    one.add(301_000_000, "x")
    other.add(301_000_001, "x")
    assert one.digest() != other.digest()


def test_asking_for_the_digest_meanwhile_changes_nothing() -> None:
    asked, unasked = filled(10), filled(10)
    asked.digest()
    for trace in (asked, unasked):
        trace.add(11_000_000, "end")
    assert asked.digest() == unasked.digest()


def test_only_the_last_lines_are_kept() -> None:
    trace = filled(5000, kept=7)
    assert len(trace.last(100)) == 7
    assert trace.last(1) == ["4999.004999 host does 4999"]
    assert trace.last(0) == []


def test_an_address_in_memory_is_refused() -> None:
    with pytest.raises(InvalidValue, match="give the value a __repr__"):
        Trace().add(1, f"host > other {object()!r}")


def test_a_long_value_is_cut_but_still_told_from_others() -> None:
    one, other = shown("x" * 500 + "a"), shown("x" * 500 + "b")
    assert len(one) <= VALUE_CHARACTERS_MAX
    assert one != other
    assert "503" in one
