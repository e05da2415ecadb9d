"""What clients recorded, and what is found in it.

    time ────────────────────────────────────────────────►
    ann   ├─ Send ─┤      ├─ Receive ──────┤
    bob       ├─ Receive ─┤   ├─ Acknowledge …            no answer came
    server ──────────────────╳ restarts

An operation took effect at one moment between its start and its end; without an answer, then or later or never.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig


class RecordedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One request, carried out at most once."""

    client: str
    start_ms: int
    request: Request
    end_ms: int | None = None
    """When the answer came; none if none came."""
    answer: Answer | None = None

    def __str__(self) -> str:
        end = "no answer" if self.end_ms is None else f"{self.end_ms} ms"
        return f"{self.client}'s {type(self.request).__name__} ({self.start_ms} ms to {end})"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All operations of all clients, with bodies that are all different; times are those of one steady clock."""

    configs: dict[str, QueueConfig]
    """Of the queues, which keep them all the time."""
    operations: list[RecordedOperation]
    restarts_ms: list[int] = []
    """When the server was started again: after all that the one before did, before all that the new one does."""
    left: dict[int, str] | None = None
    """Messages that were still there when all was over, and in which queue; none if nobody looked."""
    clock_ppm: int = 0
    """By how much the server's clock may have run too fast or too slow."""
    clock_jumps_ms: int = 0
    """By how much, in all, it may have been set forward at restarts."""


class HistoryViolation(msgspec.Struct, frozen=True):
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
