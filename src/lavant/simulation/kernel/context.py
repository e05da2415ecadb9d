"""What all parts of one simulated world share: the calendar, randomness, the trace, and counters."""

from __future__ import annotations

from collections import Counter

from lavant.simulation.kernel.calendar import Calendar
from lavant.simulation.kernel.randomness import Randomness
from lavant.simulation.kernel.trace import Trace


class SimulationContext:
    """One for each world. Without a trace nothing is formatted, and runs are about twice as quick."""

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
        """A line of the trace; where there are many, ask `is_traced` before formatting one."""
        if self.trace is not None:
            self.trace.add(self.calendar.now_us, text)
