"""The dynamic program on cases that can be checked by eye; brute force is in the property tests."""

from __future__ import annotations

from lavant.control.placement.policies.threshold import select_slices
from lavant.control.placement.view import SliceLoad
from lavant.core.ids import HostId, SliceId


def slices(**loads: tuple[float, int]) -> list[SliceLoad]:
    return [
        SliceLoad(
            id=SliceId(name), operator="M", host=HostId("a"), cpu=cpu, memory_bytes=state, network_bytes_per_s=0.0
        )
        for name, (cpu, state) in loads.items()
    ]


def chosen(loads: list[SliceLoad], cpu_least: float) -> list[str]:
    return [load.id for load in select_slices(loads, cpu_least)]


def test_the_least_state_wins_over_fewer_slices() -> None:
    assert chosen(slices(a=(0.3, 100), b=(0.15, 40), c=(0.15, 40)), 0.3) == ["b", "c"]


def test_of_equal_state_the_least_overshoot_wins() -> None:
    assert chosen(slices(a=(0.40, 10), b=(0.31, 10)), 0.3) == ["b"]


def test_of_equal_state_and_overshoot_the_fewest_slices_win() -> None:
    assert chosen(slices(a=(0.1, 0), b=(0.2, 0), c=(0.3, 0)), 0.3) == ["c"]


def test_of_equal_sets_the_first_ids_win() -> None:
    assert chosen(slices(d=(0.1, 1), b=(0.1, 1), c=(0.1, 1), a=(0.1, 1)), 0.2) == ["a", "b"]


def test_sums_that_are_equal_on_paper_are_equal() -> None:
    assert chosen(slices(a=(0.1, 1), b=(0.2, 1), c=(0.9, 5)), 0.3) == ["a", "b"]


def test_nothing_is_selected_without_need() -> None:
    assert chosen(slices(a=(0.1, 1)), 0.0) == []
    assert chosen(slices(a=(0.1, 1)), -0.2) == []


def test_all_slices_that_use_cpu_are_selected_if_they_are_not_enough() -> None:
    assert chosen(slices(a=(0.1, 1), b=(0.0, 1), c=(0.2, 1)), 0.9) == ["a", "c"]
