"""Work from a seed: arrivals with random gaps, each calling an action until the calm at the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from lavant.simulation.kernel.distributions import Distribution
from lavant.simulation.kernel.stage import Stage


class Arrivals:
    """Calls `act(random)` again and again, with gaps from a distribution, up to `until_us`.

    The gaps and the action have streams of their own, so that an action that draws more does not move the arrivals.
    """

    def __init__(
        self, stage: Stage, name: str, gap_us: Distribution, act: Callable[[Random], object], *, until_us: int
    ) -> None:
        self._calendar = stage.calendar
        self._gaps = stage.randomness.stream(f"arrivals/{name}/gaps")
        self._work = stage.randomness.stream(f"arrivals/{name}/work")
        self._gap_us = gap_us
        self._act = act
        self._until_us = until_us
        self._next()

    def _next(self) -> None:
        # Gaps of 0 without end would hold up time, so the least is 1.
        time_us = self._calendar.now_us + max(1, self._gap_us.draw_us(self._gaps))
        if time_us < self._until_us:
            self._calendar.enter(time_us, self._arrive)

    def _arrive(self) -> None:
        self._act(self._work)
        self._next()
