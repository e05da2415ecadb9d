"""The paper's controller, case by case of its Figure 7."""

from __future__ import annotations

import pytest
from tests.unit.control.publishing.figures import figures

from lavant.control.publishing import PublisherConfig, TuningConfig
from lavant.control.publishing.controllers.aimd import AimdController


def controller(batch_size: int = 8, poll_ms: int = 50) -> AimdController:
    return AimdController(PublisherConfig(tuning=TuningConfig(batch_size=batch_size, poll_ms=poll_ms)))


def hand_over(aimd: AimdController, took_ms: int = 100, *, in_time: bool = True, was_full: bool = True) -> None:
    aimd.handed_over(figures(), took_ms=took_ms, in_time=in_time, was_full=was_full)


def test_n_is_halved_when_too_few_are_waiting() -> None:
    aimd = controller(9)
    decision = aimd.fell_short(figures(now_ms=5))
    assert aimd.settings.batch_size == 4
    assert decision is not None
    assert (decision.loop, decision.action, decision.time_ms) == ("tuning", "N 9 → 4", 5)
    assert decision.reason == "fewer than N are waiting"
    assert decision.figures["batch_size"] == 4


def test_n_grows_by_one_when_a_batch_is_handed_over_in_time() -> None:
    aimd = controller(8)
    hand_over(aimd, in_time=True)
    assert aimd.settings.batch_size == 9


def test_n_falls_by_one_when_a_batch_is_late() -> None:
    aimd = controller(8)
    hand_over(aimd, in_time=False)
    assert aimd.settings.batch_size == 7


def test_a_batch_of_fewer_than_n_says_nothing_about_n() -> None:
    aimd = controller(8)
    hand_over(aimd, in_time=True, was_full=False)
    assert aimd.settings.batch_size == 8


@pytest.mark.parametrize(("took_ms", "poll_ms"), [(10, 50), (100, 120), (151, 181), (1000, 200)])
def test_the_polling_interval_follows_the_time_to_hand_over_within_bounds(took_ms: int, poll_ms: int) -> None:
    aimd = controller()
    hand_over(aimd, took_ms)
    assert aimd.settings.poll_ms == poll_ms


def test_what_arrives_in_the_shortest_interval_bounds_n_from_below() -> None:
    aimd = controller(8)
    aimd.fell_short(figures(load_per_s=121))  # 121 a second are 6.05 in 50 ms
    assert aimd.settings.batch_size == 7


def test_one_second_of_the_capacity_bounds_n_from_above() -> None:
    aimd = controller(8)
    aimd.handed_over(figures(capacity_per_s=5.9), took_ms=100, in_time=True, was_full=True)
    assert aimd.settings.batch_size == 5


def test_the_capacity_has_the_last_word_but_n_stays_at_least_one() -> None:
    aimd = controller(8)
    aimd.fell_short(figures(load_per_s=1000, capacity_per_s=0.4))
    assert aimd.settings.batch_size == 1


def test_nothing_changed_is_no_decision() -> None:
    aimd = controller(1, poll_ms=120)
    assert aimd.fell_short(figures()) is None
    assert aimd.handed_over(figures(), took_ms=100, in_time=True, was_full=False) is None
