"""Runs of a scenario over many seeds: it holds, or a mistake that was put into it is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pytest

from lavant.simulation.kernel import RunOutcome, run
from lavant.simulation.kernel.scenario import Scenario

Break: TypeAlias = Callable[[pytest.MonkeyPatch], None]
"""Puts a mistake in."""


def check_holds(scenario: Scenario, seeds: Iterable[int], *, minutes: float, options: Any) -> Counter[str]:
    """Fails with the report of the first seed that finds a violation; returns the sums of the figures."""
    figures: Counter[str] = Counter()
    for seed in seeds:
        outcome = run(scenario, seed, minutes=minutes, options=options)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    return figures


def check_found(scenario: Scenario, put_in: Break, *, minutes: float, options: Any) -> None:
    """Fails if no seed finds the mistake, or if the seed that does finds something without it too."""
    with pytest.MonkeyPatch.context() as patch:
        put_in(patch)
        found = _search(scenario, minutes, options)
    assert found is not None, "no seed finds it"
    again = run(scenario, found.seed, minutes=minutes, options=options)
    assert again.violation is None, f"the seed fails without the mistake: {again.report()}"


def _search(scenario: Scenario, minutes: float, options: Any) -> RunOutcome | None:
    """The first run with a violation."""
    for seed in range(1, 40):
        outcome = run(scenario, seed, minutes=minutes, options=options)
        if outcome.violation is not None:
            return outcome
    return None
