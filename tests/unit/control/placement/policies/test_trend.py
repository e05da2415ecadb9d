"""The trend: exact on lines, flat on noise."""

from __future__ import annotations

import pytest

from lavant.control.placement.policies.trend import fit_trend
from lavant.control.placement.view import TotalLoad

NOW_MS = 100_000


def samples(*cpus: float) -> list[TotalLoad]:
    first_ms = NOW_MS - 5_000 * (len(cpus) - 1)
    return [TotalLoad(first_ms + 5_000 * index, cpu) for index, cpu in enumerate(cpus)]


def test_a_steady_rise_is_followed_without_lag() -> None:
    trend = fit_trend(samples(*(1.0 + 0.1 * n for n in range(12))), NOW_MS, half_life_ms=20_000, errors=3.0)
    assert trend.level == pytest.approx(2.1)
    assert trend.slope_per_s == pytest.approx(0.02)
    assert trend.at(50_000) == pytest.approx(3.1)
    assert trend.highest_until(50_000) == pytest.approx(3.1)


def test_noise_alone_gives_no_slope() -> None:
    trend = fit_trend(samples(*([1.0, 1.1, 0.9] * 5)), NOW_MS, half_life_ms=20_000, errors=3.0)
    assert trend.slope_per_s == 0.0
    assert trend.level == pytest.approx(1.0, abs=0.02)


def test_a_fall_does_not_go_below_zero() -> None:
    trend = fit_trend(samples(*(1.0 - 0.09 * n for n in range(12))), NOW_MS, half_life_ms=20_000, errors=3.0)
    assert trend.at(60_000) == 0.0
    assert trend.highest_until(60_000) == trend.at(0)


@pytest.mark.parametrize(("cpus", "level"), [((), 0.0), ((0.7,), 0.7)])
def test_too_few_samples_give_their_mean(cpus: tuple[float, ...], level: float) -> None:
    trend = fit_trend(samples(*cpus), NOW_MS, half_life_ms=20_000, errors=3.0)
    assert (trend.level, trend.slope_per_s) == (level, 0.0)
