"""Durations lie where their distribution says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from statistics import mean, median

import pytest

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.distributions import Constant, Distribution, Exponential, LogUniform, Mixture, Uniform


def draws(distribution: Distribution, count: int = 4_000) -> list[int]:
    random = Random(1)
    return [distribution.draw_us(random) for _ in range(count)]


def test_a_constant_is_constant() -> None:
    assert set(draws(Constant(7))) == {7}


def test_uniform_has_both_ends_and_nothing_else() -> None:
    assert set(draws(Uniform(3, 6))) == {3, 4, 5, 6}


def test_exponential_has_its_mean_above_its_least() -> None:
    found = draws(Exponential(1000, least_us=500))
    assert min(found) >= 500
    assert mean(found) == pytest.approx(1500, rel=0.05)


def test_log_uniform_has_its_median_at_the_geometric_mean() -> None:
    found = draws(LogUniform(10, 100_000))
    assert min(found) >= 10
    assert max(found) <= 100_000
    assert median(found) == pytest.approx(1000, rel=0.15)


def test_a_mixture_is_rare_with_its_share() -> None:
    found = draws(Mixture(Constant(1), Constant(1000), share=0.1))
    assert set(found) == {1, 1000}
    assert found.count(1000) / len(found) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Constant(-1), "value_us must be 0 or more, got -1"),
        (lambda: Uniform(5, 4), "low_us must not exceed high_us, got 5 and 4"),
        (lambda: Uniform(-1, 4), "low_us must be 0 or more, got -1"),
        (lambda: Exponential(-1), "mean_us must be 0 or more, got -1"),
        (lambda: Exponential(1, least_us=-2), "least_us must be 0 or more, got -2"),
        (lambda: LogUniform(0, 4), "0 < low_us ≤ high_us is needed, got 0 and 4"),
        (lambda: Mixture(Constant(1), Constant(2), share=1.5), "share is a probability"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Distribution], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        make()
