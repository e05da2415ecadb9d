"""Sweeps: what is remembered for a time is forgotten when that is over, though nobody comes by who would notice.

Whether something was swept already makes no difference but to memory: whoever looks something up compares times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SWEEP_MS = 10_000
"""How often it is looked for."""


class _Sweep(NamedTuple):
    forget: Callable[[int], None]
    held: Callable[[], int]


class Sweeps:
    """Of all that a hub, and whoever extends it, remembers for a time."""

    __slots__ = ("_next_ms", "_sweeps")

    def __init__(self) -> None:
        self._sweeps: list[_Sweep] = []
        self._next_ms = 0

    def add(self, forget: Callable[[int], None], held: Callable[[], int]) -> None:
        """Something that can forget what is over at a time, and tell how much there is."""
        self._sweeps.append(_Sweep(forget, held))

    def next_ms(self) -> int | None:
        """When to sweep, if there is anything to be forgotten some time."""
        return self._next_ms if any(sweep.held() for sweep in self._sweeps) else None

    def advance(self, now_ms: int) -> None:
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + SWEEP_MS
            for sweep in self._sweeps:
                sweep.forget(now_ms)
