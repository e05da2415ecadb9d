"""Recorded operations of clients, and the violations found in them.

    time ────────────────────────────────────────────────►
    ann   ├─ Send ─┤      ├─ Receive ──────┤
    bob       ├─ Receive ─┤   ├─ Acknowledge …            no answer came
    server ──────────────────╳ restarts

An operation took effect at one moment between its start and its end; without an answer, then, later or never.
"""

from __future__ import annotations

import msgspec

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import QueueConfig


class RecordedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One request, which took effect at most once."""

    client: str
    start_ms: int
    request: Request
    end_ms: int | None = None
    """When the answer came; None without an answer."""
    answer: Answer | None = None

    def __str__(self) -> str:
        end = "no answer" if self.end_ms is None else f"{self.end_ms} ms"
        return f"{self.client}'s {type(self.request).__name__} ({self.start_ms} ms to {end})"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All operations of all clients, with distinct bodies; times are those of one steady clock."""

    configs: dict[str, QueueConfig]
    """Settings of the queues, constant throughout."""
    operations: list[RecordedOperation]
    restarts_ms: list[int] = []
    """Restarts of the server, each after everything its predecessor did and before everything its successor does."""
    left: dict[int, str] | None = None
    """Remaining messages at the end, and their queues; None if not inspected."""
    clock_ppm: int = 0
    """The most by which the server's clock may run fast or slow."""
    clock_jumps_ms: int = 0
    """The most, in total, by which it may have been set forward at restarts."""


class HistoryViolation(msgspec.Struct, frozen=True):
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
