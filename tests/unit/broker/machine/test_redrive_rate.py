"""The pace of moves: never above the rate, and not much below it."""

from __future__ import annotations

import msgspec
import pytest

from lavant.broker.machine.redrive_rate import STEP_INTERVAL_MS, STEP_MESSAGES_MAX, RedriveRates
from lavant.broker.protocol.queues import MoveState


def state(task: int = 1, *, rate_per_s: int | None = None, moved: int = 0, status: str = "running") -> MoveState:
    return MoveState(task, "dead", None, rate_per_s, 0, total=10**9, moved=moved, status=status, reason="")


def run(rate_per_s: int | None, seconds: int, *, start_ms: int = 5000) -> int:
    """How many messages a move with that rate may move, if it is looked after when it says."""
    paces, current = RedriveRates(), state(rate_per_s=rate_per_s)
    paces.follow(current, start_ms)
    while (now_ms := paces.wakeup_ms()) is not None and now_ms <= start_ms + 1000 * seconds:
        for step in paces.due(now_ms):
            current = msgspec.structs.replace(current, moved=current.moved + step.count)
            assert rate_per_s is None or current.moved <= rate_per_s * (now_ms - start_ms) / 1000
            paces.follow(current, now_ms)
    return current.moved


@pytest.mark.parametrize("rate_per_s", [1, 3, 7, 100, 333, 500, 10_000])
def test_a_rate_is_kept_and_reached(rate_per_s: int) -> None:
    assert rate_per_s * 10 * 0.95 - 1 <= run(rate_per_s, seconds=10) <= rate_per_s * 10


def test_without_a_rate_a_move_goes_as_fast_as_steps_go() -> None:
    assert run(None, seconds=1) == STEP_MESSAGES_MAX * 1000 // STEP_INTERVAL_MS


def test_a_step_is_never_larger_than_others_can_bear() -> None:
    paces = RedriveRates()
    paces.follow(state(rate_per_s=10**6), 0)
    assert [step.count for step in paces.due(60_000)] == [STEP_MESSAGES_MAX]


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed"])
def test_a_move_that_is_over_takes_no_more_steps(status: str) -> None:
    paces = RedriveRates()
    paces.follow(state(), 0)
    paces.follow(state(status=status), 1)
    assert (len(paces), paces.wakeup_ms(), paces.due(10_000)) == (0, None, [])


def test_moves_take_their_steps_in_the_order_of_their_numbers() -> None:
    paces = RedriveRates()
    for task in (3, 1, 2):
        paces.follow(state(task), 0)
    assert [step.task for step in paces.due(STEP_INTERVAL_MS)] == [1, 2, 3]
    assert paces.due(STEP_INTERVAL_MS) == []
