"""Stimuli and effects of a publisher.

A publication is a *ticket* here: a number, higher than all before, assigned by the machine's caller. Its content and
where it is stored do not concern the machine.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.core.decisions import Decision

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class PublicationsReceived(msgspec.Struct, frozen=True):
    """A source delivered a publication."""

    ticket: int
    size_bytes: int = 0


class PublicationsRecovered(msgspec.Struct, frozen=True):
    """A publication in the store at the publisher's start; reported oldest first, before anything else."""

    ticket: int
    size_bytes: int = 0


class Stored(msgspec.Struct, frozen=True):
    """A `StorePublications` is done: they are durable."""

    tickets: tuple[int, ...]


class Fetched(msgspec.Struct, frozen=True):
    """A `Fetch` is done: the oldest stored ones, at most as many as requested."""

    tickets: tuple[int, ...]


class BatchSent(msgspec.Struct, frozen=True):
    """A `SendBatch` is done: the broker has them. It refused so many of them for good."""

    transfer: int
    refused: int = 0


class Failed(msgspec.Struct, frozen=True):
    """A `SendBatch` failed: the broker may or may not have them, and may have said when to try again."""

    transfer: int
    retry_after_ms: int = 0


class Woken(msgspec.Struct, frozen=True):
    """The time of `wakeup_ms` has come."""


Stimulus: TypeAlias = PublicationsReceived | PublicationsRecovered | Stored | Fetched | BatchSent | Failed | Woken

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Dropped(msgspec.Struct, frozen=True):
    """The buffer is full: this publication was not accepted."""

    ticket: int


class StorePublications(msgspec.Struct, frozen=True):
    """Have a worker store these; answer with `Stored`."""

    tickets: tuple[int, ...]


class Fetch(msgspec.Struct, frozen=True):
    """Read up to so many from the store, the oldest first; answer with `Fetched`. At most one is in flight."""

    size_max: int


class SendBatch(msgspec.Struct, frozen=True):
    """Have a worker send these to the broker; answer with `BatchSent` or `Failed`."""

    transfer: int
    tickets: tuple[int, ...]


class TuningDecided(msgspec.Struct, frozen=True):
    """The controller changed something."""

    decision: Decision


Effect: TypeAlias = Dropped | StorePublications | Fetch | SendBatch | TuningDecided
