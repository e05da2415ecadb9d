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


def search(scenario: Scenario, options: Any) -> RunOutcome | None:
    """The first run with a violation."""
    for seed in range(1, 40):
        outcome = run(scenario, seed, minutes=0.2, options=options)
        if outcome.violation is not None:
            return outcome
    return None
