"""The default controller: what makes it send less at a time, and what more."""

from __future__ import annotations

from random import Random

from tests.unit.control.publishing.figures import figures

from lavant.control.publishing import PublisherConfig
from lavant.control.publishing.controllers.eager import PROBE_AFTER, PROBE_TRANSFERS, TRANSFERS_MIN, EagerController
from lavant.control.publishing.controllers.interface import TransferEnded

MAX = 17


def controller() -> EagerController:
    return EagerController(PublisherConfig(workers=20, workers_reserved=3))


def end(
    eager: EagerController,
    duration_ms: int,
    *,
    times: int = 1,
    start_ms: int = 0,
    rivals: int = 5,
    size: int = 1,
    was_held: bool = False,
) -> int:
    """So many transfers end, one after the other; the time when the last one does."""
    now_ms = start_ms
    for _ in range(times):
        now_ms += duration_ms
        eager.published(figures(now_ms=now_ms), TransferEnded(size, duration_ms, rivals, was_held))
    return now_ms


def strained() -> tuple[EagerController, int]:
    """One that knows a quick broker, and then sees a slow one."""
    eager = controller()
    now_ms = end(eager, 100, times=20, rivals=0)
    return eager, end(eager, 200, times=300, start_ms=now_ms)


def test_it_takes_all_there_is_without_polling() -> None:
    settings = controller().settings
    assert (settings.batch_size, settings.poll_ms, settings.transfers_max) == (1000, 0, MAX)


def test_transfers_that_take_as_long_as_alone_change_nothing() -> None:
    eager = controller()
    end(eager, 100, times=500, was_held=True)
    assert eager.settings.transfers_max == MAX


def test_transfers_that_take_longer_than_alone_are_limited() -> None:
    eager, _ = strained()
    assert eager.settings.transfers_max == TRANSFERS_MIN


def test_a_decrease_waits_for_the_effect_of_the_last_one() -> None:
    eager = controller()
    end(eager, 100, times=20, rivals=0)
    for _ in range(300):  # all at the same moment: they began before anything was decreased
        eager.published(figures(now_ms=5000), TransferEnded(1, 200, 5, was_held=False))
    assert eager.settings.transfers_max == int(MAX * 0.7)


def test_the_limit_grows_again_by_one_in_the_time_of_a_transfer_if_more_is_ready() -> None:
    eager, now_ms = strained()
    now_ms = end(eager, 100, times=TRANSFERS_MIN, start_ms=now_ms, was_held=True)
    assert eager.settings.transfers_max == TRANSFERS_MIN + 1 - 1  # 1/2 + 1/2.5 is not yet 1
    end(eager, 100, times=1, start_ms=now_ms, was_held=True)
    assert eager.settings.transfers_max == TRANSFERS_MIN + 1


def test_the_limit_does_not_grow_where_nothing_more_is_ready() -> None:
    eager, now_ms = strained()
    end(eager, 100, times=500, start_ms=now_ms, was_held=False)
    assert eager.settings.transfers_max == TRANSFERS_MIN


def test_silence_of_the_broker_limits_at_once() -> None:
    eager = controller()
    end(eager, 100, rivals=0)
    assert eager.wants_to_send(figures(silence_ms=310)) is None
    decision = eager.wants_to_send(figures(silence_ms=311))
    assert decision is not None
    assert decision.action == f"transfers {MAX} → {TRANSFERS_MIN}"
    assert decision.reason == "nothing has come back from the broker for 311 ms"


def test_before_the_first_answer_silence_says_nothing() -> None:
    assert controller().wants_to_send(figures(silence_ms=100_000)) is None


def test_a_failure_halves_the_limit() -> None:
    eager = controller()
    eager.failed(figures())
    assert eager.settings.transfers_max == MAX // 2


def test_large_transfers_take_longer_without_being_strained() -> None:
    eager = controller()
    now_ms = 0
    for size in (1, 20, 100, 50, 1, 10) * 100:
        now_ms = end(eager, 100 + 5 * size, start_ms=now_ms, rivals=1, size=size, was_held=True)
    assert eager.settings.transfers_max == MAX
    eager, now_ms = controller(), 0
    for size in (1, 100) * 50:
        now_ms = end(eager, 100 + 5 * size, start_ms=now_ms, rivals=0, size=size)
    end(eager, 2 * (100 + 5 * 100), times=300, start_ms=now_ms, size=100)
    assert eager.settings.transfers_max == TRANSFERS_MIN


def test_times_that_scatter_are_not_taken_for_congestion_for_long() -> None:
    random = Random(1)
    eager, now_ms, limits = controller(), 0, []
    for _ in range(5000):
        duration_ms = 40 + round(random.expovariate(1 / 100))
        rivals = min(random.randrange(8), eager.settings.transfers_max - 1)
        now_ms = end(eager, duration_ms, start_ms=now_ms, rivals=rivals, was_held=True)
        limits.append(eager.settings.transfers_max)
    assert sum(limits) / len(limits) > MAX / 2


def test_a_longer_way_to_the_broker_is_learnt() -> None:
    eager, now_ms = strained()
    for _ in range(2000):
        rivals = min(3, eager.settings.transfers_max - 1)
        now_ms = end(eager, 200, start_ms=now_ms, rivals=rivals, was_held=True)
        now_ms = end(eager, 200, start_ms=now_ms, rivals=0, was_held=True)
    assert eager.settings.transfers_max == MAX


def test_it_never_leaves_its_bounds() -> None:
    eager = EagerController(PublisherConfig(workers=2, workers_reserved=1))
    eager.failed(figures())
    assert eager.settings.transfers_max == 1
    end(eager, 100, times=50, was_held=True)
    assert eager.settings.transfers_max == 1


def probing() -> tuple[EagerController, int]:
    """One that knows a quick broker, sees a slow one, and begins to look why."""
    eager = controller()
    now_ms = end(eager, 100, times=20, rivals=0)
    while eager.settings.transfers_max > TRANSFERS_MIN:
        now_ms = end(eager, 200, start_ms=now_ms, was_held=True)
    return eager, now_ms


def test_under_lasting_strain_a_probe_finds_that_the_way_is_longer() -> None:
    eager, now_ms = probing()
    end(eager, 200, times=PROBE_TRANSFERS - 1, start_ms=now_ms, rivals=1, was_held=True)
    assert eager.settings.transfers_max == TRANSFERS_MIN
    decision = eager.published(figures(now_ms=now_ms + 9000), TransferEnded(1, 200, 0, was_held=True))
    assert decision is not None
    assert decision.action == f"transfers {TRANSFERS_MIN} → {MAX}"
    assert decision.reason == "the way to the broker takes 100 ms longer than it did"
    end(eager, 200, times=500, start_ms=now_ms + 9000, was_held=True)
    assert eager.settings.transfers_max == MAX


def test_a_probe_that_finds_a_quick_broker_goes_on_as_before_and_waits_longer_for_the_next() -> None:
    eager, now_ms = probing()
    for _ in range(3):
        now_ms = end(eager, 200, times=PROBE_TRANSFERS - 1, start_ms=now_ms, rivals=1, was_held=True)
        now_ms = end(eager, 100, start_ms=now_ms, rivals=1, was_held=True)  # one of them was let in at once
        limits = []
        for _ in range(2 * PROBE_AFTER):
            now_ms = end(eager, 200, start_ms=now_ms, was_held=True)
            limits.append(eager.settings.transfers_max)
        assert max(limits) < MAX


def test_transfers_that_began_before_a_probe_say_nothing_in_it() -> None:
    eager, now_ms = probing()
    end(eager, 900, times=3 * PROBE_TRANSFERS, start_ms=now_ms, rivals=TRANSFERS_MIN, was_held=True)
    assert eager.settings.transfers_max == TRANSFERS_MIN


def test_a_failure_ends_a_probe() -> None:
    eager, now_ms = probing()
    eager.failed(figures(now_ms=now_ms))
    halved = eager.settings.transfers_max
    end(eager, 200, times=PROBE_TRANSFERS, start_ms=now_ms, rivals=0)
    assert eager.settings.transfers_max == halved < MAX


def test_a_silence_is_measured_by_the_size_of_what_is_under_way() -> None:
    eager, now_ms = controller(), 0
    for size in (1, 101) * 200:
        now_ms = end(eager, 100 + 5 * (size - 1), start_ms=now_ms, rivals=0, size=size)
    assert eager.wants_to_send(figures(silence_ms=1700, transfer_size=101)) is None
    assert eager.wants_to_send(figures(silence_ms=1700)) is not None


def test_a_shorter_way_is_learnt_from_transfers_that_are_not_alone() -> None:
    """Or else congestion would show only when transfers take longer than they did on the longer way."""
    eager = controller()
    now_ms = end(eager, 400, times=20, rivals=0)
    now_ms = end(eager, 100, times=300, start_ms=now_ms)
    end(eager, 200, times=300, start_ms=now_ms)
    assert eager.settings.transfers_max == TRANSFERS_MIN
