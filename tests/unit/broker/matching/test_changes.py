"""The change log: what it gives out, what it forgets, and what it says then."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.broker.matching.toy_matcher import ToyFilters, ToyMatcher, numbers

from lavant.broker.matching import changes
from lavant.broker.matching.changes import ChangeLog, MatcherChange
from lavant.core.errors import CorruptSnapshot, InvalidValue


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def log_of(*sizes: int) -> ChangeLog[ToyFilters]:
    log: ChangeLog[ToyFilters] = ChangeLog()
    for version, size in enumerate(sizes, start=1):
        log.append(version, MatcherChange(np.arange(size, dtype=np.uint32), numbers(*range(size))))
    return log


def unpack(delta: bytes, version: int, scheme: str = "toy") -> list[MatcherChange[ToyFilters]]:
    return ChangeLog.unpack(scheme, delta, version, ToyFilters)


def test_additions_and_removals_come_back_in_order() -> None:
    log: ChangeLog[ToyFilters] = ChangeLog()
    log.append(1, MatcherChange(ids(5, 3), numbers(50, 30)))
    log.append(2, MatcherChange(ids(5), None))
    log.append(3, MatcherChange(ids(7), numbers(70)))
    first, second, third = unpack(log.pack("toy", 0), 0)
    assert first.filters is not None
    assert (first.ids.tolist(), first.filters.numbers.tolist()) == ([5, 3], [50, 30])
    assert (second.ids.tolist(), second.filters) == ([5], None)
    assert third.ids.tolist() == [7]
    assert [change.ids.tolist() for change in unpack(log.pack("toy", 2), 2)] == [[7]]


def test_a_delta_of_more_than_ten_changes_keeps_their_arrays_apart() -> None:
    log = log_of(*range(1, 13))
    assert [len(change.ids) for change in unpack(log.pack("toy", 0), 0)] == list(range(1, 13))


def test_nothing_new_is_an_empty_delta() -> None:
    assert unpack(log_of(3).pack("toy", 1), 1) == []


def test_old_changes_are_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SUBSCRIPTIONS_MAX", 10)
    log = log_of(4, 4, 2)
    assert len(unpack(log.pack("toy", 0), 0)) == 3
    log.append(4, MatcherChange(ids(1), None))
    with pytest.raises(InvalidValue) as refused:
        log.pack("toy", 0)
    assert str(refused.value) == ("version 0 is not between 1 and 4, which the change log holds; take a snapshot")
    assert len(unpack(log.pack("toy", 1), 1)) == 3


def test_a_change_larger_than_the_bound_is_not_kept_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SUBSCRIPTIONS_MAX", 10)
    log = log_of(3, 11)
    with pytest.raises(InvalidValue, match="version 1 is not between 2 and 2"):
        log.pack("toy", 1)
    assert unpack(log.pack("toy", 2), 2) == []


def test_a_matcher_beyond_the_bound_asks_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SUBSCRIPTIONS_MAX", 100)
    matcher = ToyMatcher()
    for start in range(0, 240, 30):
        matcher.add(range(start, start + 30), numbers(*range(30)))
    with pytest.raises(InvalidValue, match="version 4 is not between 5 and 8, which the change log holds; take a snap"):
        matcher.delta(since=4)
    assert len(unpack(matcher.delta(since=5), 5)) == 3


@pytest.mark.parametrize("since", [-1, 3])
def test_a_version_that_never_was_is_refused(since: int) -> None:
    with pytest.raises(InvalidValue, match=f"version {since} is not between 0 and 2"):
        log_of(1, 1).pack("toy", since)


def test_a_delta_fits_one_scheme_and_one_version() -> None:
    delta = log_of(1, 1).pack("toy", 1)
    with pytest.raises(InvalidValue, match="the delta is of scheme 'toy', the matcher of 'plain'"):
        unpack(delta, 1, scheme="plain")
    with pytest.raises(InvalidValue, match="starts at version 1, the matcher is at 0; ask for a delta since that"):
        unpack(delta, 0)


def test_a_damaged_delta_is_refused() -> None:
    delta = log_of(5).pack("toy", 0)
    for damaged in (delta[:10], delta[: len(delta) // 2], delta[:-30], bytes(len(delta))):
        with pytest.raises(CorruptSnapshot, match="the delta"):
            unpack(damaged, 0)
    flipped = bytearray(delta)
    flipped[-128] ^= 1  # two arrays of 64 bytes each, padding counted: ids and numbers
    with pytest.raises(CorruptSnapshot, match=r"the checksum of 0\.ids differs"):
        unpack(bytes(flipped), 0)
