"""The machine interface of a host: stimuli in, effects out, without access to the world.

    world ── WorkRequested, Arrived, TimerDue, Written, WriteFailed, BackgroundFinished ──► machine.handle(…, now_ms)
          ◄── SendPacket, Commit, Background, Note, Halt ───────────────────────────────────┘

A machine of the data or control plane with stimuli and effects of its own is wrapped by a few lines in its scenario.
While it handles something it may use its host's disk directly, through the `Disk` protocol: the host is then busy for
as long as the disk takes, and the effects go out after that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class WorkRequested(msgspec.Struct, frozen=True, gc=False):
    """The workload requests something of this machine."""

    value: Any


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A packet from another host, perhaps late or duplicated."""

    source: str
    payload: Any


class Written(msgspec.Struct, frozen=True, gc=False):
    """The data of a `Commit` is durable."""

    tag: Hashable


class WriteFailed(msgspec.Struct, frozen=True, gc=False):
    """The disk refused a `Commit`; parts of it may be written."""

    tag: Hashable
    error: str


class BackgroundFinished(msgspec.Struct, frozen=True, gc=False):
    """A `Background` action ended, or failed."""

    tag: Hashable
    result: Any
    error: Exception | None = None


class TimerDue(msgspec.Struct, frozen=True, gc=False):
    """The clock has reached `wakeup_ms`."""


Stimulus: TypeAlias = WorkRequested | Arrived | Written | WriteFailed | BackgroundFinished | TimerDue

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SendPacket(msgspec.Struct, frozen=True, gc=False):
    """Send a packet to another host. The payload is passed by reference, so it must be immutable."""

    to: str
    payload: Any


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Write to a file and sync it, while the machine continues; `Written(tag)` follows when it is durable."""

    name: str
    position: int
    data: bytes
    tag: Hashable


class Background(msgspec.Struct, frozen=True, gc=False):
    """Do something with the host's disk concurrently, as another thread or process would; `BackgroundFinished(tag, …)`
    follows after as long as the disk takes. It carries errors of Lavant and of the disk; others end the run.
    """

    action: Callable[[], Any]
    tag: Hashable


class Note(msgspec.Struct, frozen=True, gc=False):
    """A value for the scenario's records, such as a confirmation that invariants check against."""

    value: Any


class Halt(msgspec.Struct, frozen=True, gc=False):
    """The process gives up; its host restarts it after a while."""

    reason: str


Effect: TypeAlias = SendPacket | Commit | Background | Note | Halt


class Machine(Protocol):
    """A deterministic state machine."""

    def handle(self, stimulus: Stimulus, now_ms: int, /) -> Sequence[Effect]:
        """Take a stimulus; `now_ms` is what the host's clock shows, which may have gone back."""
        ...

    def wakeup_ms(self) -> int | None:
        """When the machine wants a `TimerDue`, by its host's clock; asked again after each stimulus."""
        ...
