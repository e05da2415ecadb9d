"""Commands in two phases: check, then apply.

    request ──► check ──► plan ──► apply ──► answer
                  │                  │
                  ▼                  ▼
              LavantError        cannot fail

The check only reads. It raises a `LavantError` if the command cannot be done, and otherwise returns a plan: a function
without arguments that applies the command and returns the answer. A command that consists of others makes all their
plans before it applies the first. So a refused command has changed nothing.

The check may drop stale entries of lazily read data (expired names, removed messages): this has no visible effect, and
a snapshot has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from lavant.core.errors import LavantError

Plan: TypeAlias = Callable[[], Any]


class HalfApplied(Exception):
    """A command failed while it was applied: its check is wrong, and the state can no longer be trusted.

    Deliberately not a `LavantError`, so that it is never answered as a refusal.
    """


def half_applied(error: LavantError) -> HalfApplied:
    return HalfApplied(f"a command was refused after it had begun ({type(error).__name__}: {error})")


def unchanged(answer: Any) -> Plan:
    """The plan of a command that has nothing to do."""
    return lambda: answer
