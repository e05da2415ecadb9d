"""A command in two phases: check, then apply.

    request ──► check ──► plan ──► apply ──► answer
                  │                  │
                  ▼                  ▼
              LavantError        cannot fail

The first phase only reads. It raises a `LavantError` if the command cannot be carried out, and otherwise returns a
plan: a function without arguments that carries it out and returns the answer. A command that consists of others makes
the plans of all of them before the first is applied. So what is refused has changed nothing, whatever it consists of.

What is read lazily may be tidied in the first phase (names whose time is over, entries of messages that are gone):
nobody can tell the difference, and a snapshot has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from lavant.core.errors import LavantError

Plan: TypeAlias = Callable[[], Any]


class HalfApplied(Exception):
    """A command failed when it was being applied: its check is wrong, and what it has changed cannot be trusted.

    On purpose no `LavantError`: nobody may answer it as a refusal and go on.
    """


def half_applied(error: LavantError) -> HalfApplied:
    return HalfApplied(f"a command was refused after it had begun ({type(error).__name__}: {error})")


def unchanged(answer: Any) -> Plan:
    """The plan of a command for which nothing is left to do."""
    return lambda: answer
