"""Which host matches which slices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.errors import IdentityMismatch, InvalidValue
from lavant.core.identities import UNKNOWN
from lavant.pipeline.cluster.assignment import ANYWHERE, HostSlices, SliceAssignment


def test_slices_are_dealt_out_in_turn() -> None:
    hosts = SliceAssignment.even(7, 3, access=2, exit=4).hosts
    assert [host.match for host in hosts] == [(0, 3, 6), (1, 4), (2, 5)]
    assert [host.access for host in hosts] == [(0,), (1,), ()]
    assert [host.exit for host in hosts] == [(0, 3), (1,), (2,)]


@given(slices=st.integers(1, 200), hosts=st.integers(1, 300))
def test_every_slice_has_one_host_and_no_host_has_nothing_or_two_more_than_another(slices: int, hosts: int) -> None:
    assignment = SliceAssignment.even(slices, hosts)
    sizes = [len(host.match) for host in assignment.hosts]
    assert sorted(slice for host in assignment.hosts for slice in host.match) == list(range(slices))
    assert all(host.exit for host in assignment.hosts)
    assert len(sizes) == min(slices, hosts)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@pytest.mark.parametrize("hosts", [0, -1])
def test_without_hosts_there_is_no_assignment(hosts: int) -> None:
    with pytest.raises(InvalidValue, match=f"at least one host, got {hosts}"):
        SliceAssignment.even(4, hosts)


def test_hosts_without_slices_of_an_operator_get_no_task_of_it() -> None:
    given = SliceAssignment(
        (
            HostSlices(access=(1,), match=(0, 2), location="executor_h_3"),
            HostSlices(exit=(0, 1)),
            HostSlices(access=(0,), match=(1,), location="executor_h_4"),
        )
    )
    assert [number for number, _ in given.matching] == [0, 2]
    assert [number for number, _ in given.exiting] == [1]
    assert given.access_locations == ["executor_h_4", "executor_h_3"]
    assert SliceAssignment.even(4, 2).access_locations[0] == ANYWHERE


@given(slices=st.integers(1, 60), hosts=st.integers(1, 9), after=st.integers(1, 60))
def test_a_store_with_another_number_of_slices_keeps_the_hosts(slices: int, hosts: int, after: int) -> None:
    before = SliceAssignment.even(slices, hosts)
    resliced = before.resliced(after)
    resliced.check(after, "any")
    assert len(resliced.hosts) == len(before.hosts)
    for old, new in zip(before.hosts, resliced.hosts, strict=True):
        assert {number for number in old.match if number < after} <= set(new.match)


def placed(*slices: tuple[int, ...], store: str = UNKNOWN) -> SliceAssignment:
    return SliceAssignment(tuple(HostSlices(match=numbers) for numbers in slices), store)


@pytest.mark.parametrize("hosts", [((0, 1),), ((0, 1), (1, 2)), ((0, 1, 2, 3),), ((0, 2), (3,))])
def test_a_placement_that_does_not_match_each_slice_once_is_refused(hosts: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(IdentityMismatch, match="does not fit a store of 3 slices"):
        placed(*hosts).check(3, "a")


def test_a_placement_of_another_store_is_refused() -> None:
    placed((0, 2), (1,), store="a").check(3, "a")
    placed((0, 2), (1,)).check(3, "a")
    with pytest.raises(IdentityMismatch, match="is for the store with identity a, but these subscriptions have b"):
        placed((0, 2), (1,), store="a").check(3, "b")
