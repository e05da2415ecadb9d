"""The stabilisation window: scale out at once, scale in late.

As in Kubernetes, a topic is scaled in only to the largest allocation wanted within the window.
"""

from __future__ import annotations

from collections import deque

from lavant.control.allocation.system.system import Consumers


class StabilizationWindow:
    """Wanted allocations within the window.

    >>> recent = StabilizationWindow(window_ms=10)
    >>> [recent.most((m,), now_ms) for now_ms, m in [(0, 3), (5, 1), (10, 1), (11, 1)]]
    [(3,), (3,), (3,), (1,)]
    """

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        self._wanted: deque[tuple[int, Consumers]] = deque()

    def most(self, wanted: Consumers, now_ms: int) -> Consumers:
        """The largest allocation of each topic within the window, including the one wanted now."""
        self._wanted.append((now_ms, wanted))
        while self._wanted[0][0] < now_ms - self._window_ms:
            self._wanted.popleft()
        return tuple(map(max, zip(*(consumers for _, consumers in self._wanted), strict=True)))
