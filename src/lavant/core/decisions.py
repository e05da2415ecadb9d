"""Decisions of control loops, with their reasons and figures; dashboard, log and tests read the same object."""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The action that a control loop decided on at `time_ms`, the reason in words, and the figures behind it.

    >>> print(Decision(loop="placement", action="add host", reason="average CPU above 70 %", figures={"cpu": 0.74}))
    placement: add host, because average CPU above 70 % (cpu=0.74)
    """

    loop: str
    action: str
    reason: str
    figures: dict[str, float] = {}
    time_ms: int = 0

    def __str__(self) -> str:
        figures = ", ".join(f"{name}={value:g}" for name, value in sorted(self.figures.items()))
        return f"{self.loop}: {self.action}, because {self.reason}" + (f" ({figures})" if figures else "")
