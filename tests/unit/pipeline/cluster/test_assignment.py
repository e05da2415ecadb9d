"""Which host matches which slices."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.pipeline.cluster.assignment import ANYWHERE, SliceAssignment


def test_slices_are_dealt_out_in_turn() -> None:
    assert SliceAssignment.even(7, 3).hosts == ((0, 3, 6), (1, 4), (2, 5))


@given(slices=st.integers(1, 200), hosts=st.integers(1, 300))
def test_every_slice_has_one_host_and_no_host_has_nothing_or_two_more_than_another(slices: int, hosts: int) -> None:
    assignment = SliceAssignment.even(slices, hosts)
    sizes = [len(each) for each in assignment.hosts]
    assert sorted(slice for each in assignment.hosts for slice in each) == list(range(slices))
    assert len(sizes) == min(slices, hosts)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@pytest.mark.parametrize("hosts", [0, -1])
def test_without_hosts_there_is_no_assignment(hosts: int) -> None:
    with pytest.raises(InvalidValue, match=f"at least one host, got {hosts}"):
        SliceAssignment.even(4, hosts)


def test_an_assignment_comes_back_from_the_file_that_the_manager_writes() -> None:
    given = SliceAssignment(((0, 2), (), (1,)), ("executor_h_3", ANYWHERE))
    assert msgspec.json.decode(msgspec.json.encode(given), type=SliceAssignment) == given
    assert [given.location(host) for host in range(3)] == ["executor_h_3", ANYWHERE, ANYWHERE]


@pytest.mark.parametrize("hosts", [((0, 1),), ((0, 1), (1, 2)), ((0, 1, 2, 3),), ((0, 2), (3,))])
def test_a_placement_that_does_not_match_each_slice_once_is_refused(hosts: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(IdentityMismatch, match="does not fit a store of 3 slices"):
        SliceAssignment(hosts).check(3, "a")


def test_a_placement_of_another_store_is_refused() -> None:
    SliceAssignment(((0, 2), (1,)), store="a").check(3, "a")
    SliceAssignment(((0, 2), (1,))).check(3, "a")
    with pytest.raises(IdentityMismatch, match="is for the store with identity a, but these subscriptions have b"):
        SliceAssignment(((0, 2), (1,)), store="a").check(3, "b")
