"""What runs on a host: a machine that takes stimuli and returns effects, and never sees the world itself.

    world ── Asked, Arrived, Due, Written, WriteFailed, Finished ──► machine.handle(stimulus, now_ms)
          ◄── Send, Commit, Background, Note, Halt ──────────────────┘

A machine of the data or control plane that has stimuli and effects of its own is wrapped by a few lines in its
scenario. While it handles something it may use its host's disk directly, through the `Disk` protocol: the host is then
busy for as long as the disk takes, and the effects go out after that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

# ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class WorkRequested(msgspec.Struct, frozen=True, gc=False):
    """The workload wants something of this machine."""

    value: Any


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A packet from another host, perhaps late, perhaps once more."""

    source: str
    payload: Any


class Written(msgspec.Struct, frozen=True, gc=False):
    """What a `Commit` wrote is on the disk for good."""

    tag: Hashable


class WriteFailed(msgspec.Struct, frozen=True, gc=False):
    """A `Commit` that the disk did not take; whether some of it is there is not known."""

    tag: Hashable
    error: str


class BackgroundFinished(msgspec.Struct, frozen=True, gc=False):
    """What `Background` was to do is done, or failed."""

    tag: Hashable
    result: Any
    error: Exception | None = None


class TimerDue(msgspec.Struct, frozen=True, gc=False):
    """The clock shows what `wakeup_ms` said, or more."""


Stimulus: TypeAlias = WorkRequested | Arrived | Written | WriteFailed | BackgroundFinished | TimerDue

# ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SendPacket(msgspec.Struct, frozen=True, gc=False):
    """A packet to another host. The payload is passed as it is, so it must be a value that nobody changes."""

    to: str
    payload: Any


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Write to a file and sync it, while the machine goes on; `Written(tag)` says when it is durable."""

    name: str
    position: int
    data: bytes
    tag: Hashable


class Background(msgspec.Struct, frozen=True, gc=False):
    """Do something with the host's disk beside the machine, as another thread or process would; `Finished(tag, …)` says
    when, after as long as the disk takes. Errors of Lavant's own and of the disk come with it, others end the run."""

    action: Callable[[], Any]
    tag: Hashable


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something for the scenario's own books, such as a confirmation that invariants are checked against."""

    value: Any


class Halt(msgspec.Struct, frozen=True, gc=False):
    """The process gives up; its host starts it again after a while."""

    reason: str


Effect: TypeAlias = SendPacket | Commit | Background | Note | Halt


class Machine(Protocol):
    """A deterministic state machine."""

    def handle(self, stimulus: Stimulus, now_ms: int, /) -> Sequence[Effect]:
        """Take a stimulus; `now_ms` is what the host's clock shows, which may be less than it was."""
        ...

    def wakeup_ms(self) -> int | None:
        """When the machine wants a `TimerDue`, by its host's clock; asked again after each stimulus."""
        ...
