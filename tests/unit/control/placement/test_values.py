"""Values refuse what cannot be."""

from __future__ import annotations

import math

import pytest

from lavant.control.placement.values import HostProbe, Move, Placement, PlacementPlan, Probes, SliceProbe
from lavant.core.decisions import Decision
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId

A, B = HostId("a"), HostId("b")
M1 = SliceId("M:1")
DECISION = Decision(loop="placement", action="rebalance", reason="a test")


@pytest.mark.parametrize("cpu", [-0.1, math.nan, math.inf])
def test_a_probe_without_a_proper_number_is_refused(cpu: float) -> None:
    with pytest.raises(InvalidValue, match="cpu of slice 'M:1'"):
        SliceProbe(id=M1, operator="M", cpu=cpu)


def test_a_slice_on_two_hosts_is_refused() -> None:
    probe = SliceProbe(id=M1, operator="M", cpu=0.1)
    with pytest.raises(InvalidValue, match="slice 'M:1' occurs 2 times"):
        Probes(hosts=(HostProbe(id=A, slices=(probe,)), HostProbe(id=B, slices=(probe,))))


def test_a_host_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidValue, match="host 'a' occurs 2 times"):
        Probes(hosts=(HostProbe(id=A), HostProbe(id=A)))


def test_a_placement_on_an_unknown_host_is_refused() -> None:
    with pytest.raises(InvalidValue, match="not one of the hosts"):
        Placement.of([A], {M1: B})


def test_a_plan_for_another_placement_is_refused() -> None:
    plan = PlacementPlan(decision=DECISION, moves=(Move(slice=M1, source=B, destination=A),))
    with pytest.raises(InvalidValue, match="another placement"):
        Placement.of([A, B], {M1: A}).after(plan)


def test_a_plan_that_releases_a_host_with_slices_is_refused() -> None:
    with pytest.raises(InvalidValue, match="not one of the hosts"):
        Placement.of([A, B], {M1: A}).after(PlacementPlan(decision=DECISION, hosts_released=(A,)))
