"""Values in seconds, which accept and show milliseconds under the names they had before."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.errors import InvalidValue, LimitExceeded
from lavant.core.seconds import SecondsValue, check_seconds, in_milliseconds, in_seconds


class Nap(SecondsValue, frozen=True):
    where: str = "sofa"
    length_s: float = 1.5
    pause_s_max: float | None = None
    rate_per_s: float = 2.0


OLD: Any = Nap
"""The same class for names that type checkers refuse."""


def test_times_go_by_their_new_names_without_a_warning() -> None:
    assert Nap("bed", length_s=2).length_s == 2


def test_an_old_name_is_converted_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="length_ms is now length_s, in seconds") as caught:
        assert OLD("bed", length_ms=250) == Nap("bed", length_s=0.25)
    assert caught[0].filename == __file__, "the warning points at the caller"
    with pytest.warns(DeprecationWarning, match="pause_ms_max is now pause_s_max"):
        assert OLD(pause_ms_max=None) == Nap()


def test_an_old_name_can_be_read_with_a_warning() -> None:
    nap: Any = Nap(length_s=0.25)
    with pytest.warns(DeprecationWarning, match="length_ms is now length_s, in seconds") as caught:
        assert nap.length_ms == 250
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="pause_ms_max is now pause_s_max"):
        assert nap.pause_ms_max is None
    for name in ("rate_per_ms", "where_ms", "other"):
        with pytest.raises(AttributeError, match=name):
            getattr(nap, name)


@pytest.mark.parametrize("wrong", ["soon", True, [1]])
def test_an_old_name_with_a_wrong_value_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="length_ms must be a number of milliseconds, got"):
        OLD(length_ms=wrong)


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(InvalidValue, match="give length_s or length_ms, not both"):
        OLD(length_s=1, length_ms=1000)


def test_a_time_without_its_name_is_refused_since_its_unit_has_changed() -> None:
    with pytest.raises(TypeError, match="Nap: give length_s and what follows by name; times are in seconds"):
        OLD("bed", 30_000)


def test_a_value_survives_copies_and_pickles() -> None:
    nap = Nap("bed", length_s=2, pause_s_max=3)
    assert copy.deepcopy(nap) == pickle.loads(pickle.dumps(nap)) == nap
    assert msgspec.structs.replace(nap, length_s=4) == Nap("bed", length_s=4, pause_s_max=3)


@given(st.integers(0, 10**15))
def test_each_millisecond_has_seconds_of_its_own(time_ms: int) -> None:
    assert in_milliseconds(in_seconds(time_ms)) == time_ms


@pytest.mark.parametrize("wrong", ["1", True, None, float("nan"), [], b"1"])
def test_what_is_no_number_of_seconds_is_shown(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="wait_s must be a number of seconds, got"):
        check_seconds("wait_s", wrong)


def test_a_range_is_told_and_a_value_above_it_is_over_a_limit() -> None:
    with pytest.raises(InvalidValue, match="retention_s must be between 60 and 1209600, got 1") as low:
        check_seconds("retention_s", 1, 60, 1_209_600)
    with pytest.raises(LimitExceeded, match="retention_s must be between 60 and 1209600, got 10000000"):
        check_seconds("retention_s", 1e7, 60, 1_209_600)
    assert not isinstance(low.value, LimitExceeded)
