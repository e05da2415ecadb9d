"""What a consumer receives: acknowledged, or released for another attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX
from lavant.core.errors import InvalidValue
from lavant.core.publications.trace_context import NO_TRACE, TraceContext

RETRY_S_FIRST, RETRY_S_MAX = 1.0, 300.0

Settle: TypeAlias = Callable[[int | None, str], None]
"""Acknowledges a message (None), or releases it after so many milliseconds, for a reason."""


class ReceivedItem:
    """Comes again until it is acknowledged. Only the first `acknowledge` or `retry` counts."""

    __slots__ = ("_is_settled", "_settle", "attempt", "trace")

    def __init__(self, attempt: int, settle: Settle, trace: TraceContext = NO_TRACE) -> None:
        self.attempt = attempt
        """The attempt number, from 1."""
        self.trace = trace
        """The trace context that it was sent with; `trace.headers()` passes it on."""
        self._settle = settle
        self._is_settled = False

    def acknowledge(self) -> None:
        """Marks it as done: it never comes again. The server is told in the background, in batches."""
        self._settle_once(None, "")

    def retry(self, after_s: float = 0.0, *, reason: str = "") -> None:
        """Releases it: it comes again after `after_s`, to any consumer. The server keeps the `reason`, for people who
        look at dead letters."""
        if not 0 <= after_s * SECOND_MS <= VISIBILITY_MS_MAX:
            raise InvalidValue(f"after_s must be between 0 and {VISIBILITY_MS_MAX // SECOND_MS} s, got {after_s}")
        self._settle_once(round(after_s * SECOND_MS), reason)

    def _settle_once(self, retry_ms: int | None, reason: str) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settle(retry_ms, reason)


def pause_s(attempt: int) -> float:
    """The pause before a failed message comes again; it doubles with each attempt.

    >>> [pause_s(attempt) for attempt in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return min(RETRY_S_FIRST * 2.0 ** min(attempt - 1, 20), RETRY_S_MAX)
