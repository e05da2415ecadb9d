"""The bounds of a whole hub; those of a queue are in its configuration.

They decide whether a request is accepted, never what it does: a journal written under other limits replays the same.
"""

from __future__ import annotations

import msgspec


class HubLimits(msgspec.Struct, frozen=True):
    queues_max: int = 10_000
    memory_max: int = 16 << 30
    """Bytes of memory that all that is held may take, as `lavant.broker.queues.memory` counts them."""
    moves_max: int = 100
    """How many may run at once."""
    deduplication_names_max: int = 10_000_000
    """How many a queue remembers, which is for five minutes each."""


DEFAULT_LIMITS = HubLimits()
UNLIMITED = HubLimits(*[1 << 62] * 4)
"""For a replay: what was accepted once is not refused later."""
