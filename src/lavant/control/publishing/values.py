"""What goes into a publisher and what comes out of it.

A publication is a *ticket* here: a number that whoever runs the machine gives it, higher than all before. What it says
and where it is stored is none of the machine's business.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.core.decisions import Decision

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class PublicationsReceived(msgspec.Struct, frozen=True):
    """A source brought a publication."""

    ticket: int
    size_bytes: int = 0


class PublicationsRecovered(msgspec.Struct, frozen=True):
    """This one was in the store when the publisher started; to be told oldest first, before anything else."""

    ticket: int
    size_bytes: int = 0


class Stored(msgspec.Struct, frozen=True):
    """They are durable: a `StorePublications` is done."""

    tickets: tuple[int, ...]


class Fetched(msgspec.Struct, frozen=True):
    """A `Fetch` is done: the oldest that were stored, at most as many as were asked for."""

    tickets: tuple[int, ...]


class BatchSent(msgspec.Struct, frozen=True):
    """The broker has them: a `SendBatch` is done. It refused so many of them for good."""

    transfer: int
    refused: int = 0


class Failed(msgspec.Struct, frozen=True):
    """A `SendBatch` failed: the broker may or may not have them, and may have said when to come again."""

    transfer: int
    retry_after_ms: int = 0


class Woken(msgspec.Struct, frozen=True):
    """The time of `wakeup_ms` has come."""


Stimulus: TypeAlias = PublicationsReceived | PublicationsRecovered | Stored | Fetched | BatchSent | Failed | Woken

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Dropped(msgspec.Struct, frozen=True):
    """The buffer is full: this one was not taken."""

    ticket: int


class StorePublications(msgspec.Struct, frozen=True):
    """A worker stores these; answer with `Stored`."""

    tickets: tuple[int, ...]


class Fetch(msgspec.Struct, frozen=True):
    """Read up to so many from the store, the oldest first; answer with `Fetched`. At most one is under way."""

    size_max: int


class SendBatch(msgspec.Struct, frozen=True):
    """A worker hands these to the broker; answer with `BatchSent` or `Failed`."""

    transfer: int
    tickets: tuple[int, ...]


class TuningDecided(msgspec.Struct, frozen=True):
    """The controller changed something."""

    decision: Decision


Effect: TypeAlias = Dropped | StorePublications | Fetch | SendBatch | TuningDecided
