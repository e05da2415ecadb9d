"""Policies against each other in virtual time, over seeds. A failure names the curve; the seeds are in the file."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from lavant.control.placement.config import PlacementConfig
from lavant.simulation.placement import trial
from lavant.simulation.placement.load_curves import Curve, ramp, replay, trading_day
from lavant.simulation.placement.trial import Trial, run_trial

SEEDS = (11, 12)  # others than those the defaults were chosen with

CURVES: dict[str, Callable[[int], Curve]] = {
    "ramp": lambda seed: ramp(),
    "day": lambda seed: trading_day(seed=seed),
}


@cache
def trials(curve: str, policy: str) -> Sequence[Trial]:
    return [run_trial(CURVES[curve](seed), PlacementConfig(policy=policy), seed=seed) for seed in SEEDS]


def total(curve: str, policy: str, figure: Callable[[Trial], float]) -> float:
    return sum(map(figure, trials(curve, policy)))


@pytest.mark.parametrize("curve", CURVES)
def test_forecast_moves_fewer_slices_than_threshold(curve: str) -> None:
    assert total(curve, "forecast", lambda t: t.moves) < total(curve, "threshold", lambda t: t.moves)


@pytest.mark.parametrize("curve", CURVES)
def test_forecast_keeps_single_hosts_in_a_tighter_envelope(curve: str) -> None:
    for forecast, threshold in zip(trials(curve, "forecast"), trials(curve, "threshold"), strict=True):
        assert forecast.load_max <= threshold.load_max
        assert forecast.host_s_outside < threshold.host_s_outside


def test_on_a_day_forecast_lets_publications_wait_for_less_long() -> None:
    for forecast, threshold in zip(trials("day", "forecast"), trials("day", "threshold"), strict=True):
        assert forecast.delays.p99_ms < threshold.delays.p99_ms
        assert forecast.delays.max_ms < threshold.delays.max_ms


@pytest.mark.parametrize("policy", ["threshold", "forecast"])
def test_on_the_ramp_delays_stay_below_two_seconds_whatever_moves(policy: str) -> None:
    """e-StreamHub, Section VI: migrations make delays rise to less than two seconds."""
    for run in trials("ramp", policy):
        assert run.delays.p50_ms < 150
        assert run.delays_moving.p50_ms > 2 * run.delays.p50_ms
        assert run.delays.max_ms < 2_500


@pytest.mark.parametrize("curve", CURVES)
def test_forecast_uses_about_as_many_host_hours(curve: str) -> None:
    ratio = total(curve, "forecast", lambda t: t.host_hours) / total(curve, "threshold", lambda t: t.host_hours)
    assert 0.9 < ratio < 1.1


@pytest.mark.parametrize("policy", ["threshold", "forecast"])
def test_hosts_follow_the_ramp_up_and_down_again(policy: str) -> None:
    for run in trials("ramp", policy):
        assert run.hosts[0] == 1
        assert 10 <= max(run.hosts) <= 16
        assert run.hosts[-1] == 1


def test_the_example_of_a_trial_runs() -> None:
    results = doctest.testmod(trial)
    assert results.attempted > 0
    assert results.failed == 0


def test_static_never_moves_anything() -> None:
    run = run_trial(ramp(rise_s=120, hold_s=30), PlacementConfig(policy="static"), seed=1, hosts_at_start=15)
    assert (run.moves, set(run.hosts), run.decisions) == (0, {15}, [])


def test_the_same_seed_gives_the_same_trial() -> None:
    curve = trading_day(seed=3)[1000:1600]
    first, second = (run_trial(curve, PlacementConfig(), seed=3) for _ in range(2))
    assert first == second


def test_a_replayed_day_keeps_its_shape() -> None:
    times_ms = np.concatenate([np.arange(0, 600_000, 1000), np.arange(600_000, 1_200_000, 100)])
    curve = replay(times_ms, speedup=20, peak_per_s=100.0)
    assert len(curve) == 60
    assert curve[10] == pytest.approx(10.0)
    assert curve.max() == pytest.approx(100.0)
