"""The context shared by all parts of one simulated world: calendar, randomness, trace, counters."""

from __future__ import annotations

from collections import Counter

from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.kernel.randomness import Randomness
from lavant.simulation.kernel.trace import Trace


class SimulationContext:
    """One per world. Without a trace nothing is formatted, and runs are about twice as fast."""

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self.calendar = Calendar()
        self.randomness = Randomness(seed)
        self.trace = trace
        self.is_traced = trace is not None
        self.figures: Counter[str] = Counter()

    @property
    def now_us(self) -> int:
        return self.calendar.now_us

    def say(self, text: str) -> None:
        """Add a line to the trace; in hot paths, check `is_traced` before formatting one."""
        if self.trace is not None:
            self.trace.add(self.calendar.now_us, text)
