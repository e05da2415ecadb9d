"""Messages between hosts, and between the manager and hosts.

    host ◄── Data, Ack ──► host          the links between slices
    host ◄── State ── host               a slice's state, from its old host to its new one
    manager ── Create, Route, Stop, Settle ──► host
    manager ◄── Created, Routed, Stopped, Copied, Settled ── host

Any message may be lost, late or repeated. Data is numbered; commands carry the number of their migration, can be
repeated, and are answered each time.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.core.ids import HostId, SliceId


class HostMessage(msgspec.Struct, frozen=True, gc=False):
    """Encoded with its tag, which is part of the wire format and stays when a class is renamed."""


# ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Data(HostMessage, frozen=True, tag="Data"):
    """Number `sequence` on the link from slice `upstream` to slice `to`; the content is that of `wire.encode`."""

    upstream: SliceId
    to: SliceId
    sequence: int
    content: bytes


class Ack(HostMessage, frozen=True, tag="Ack"):
    """Slice `to` has processed everything up to `sequence` on the link from `upstream`."""

    upstream: SliceId
    to: SliceId
    sequence: int


# ── migration ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Create(HostMessage, frozen=True, tag="Create"):
    """Make an empty slice that processes nothing and keeps its inputs."""

    migration: int
    slice: SliceId


class SliceCreated(HostMessage, frozen=True, tag="Created"):
    migration: int
    slice: SliceId


class Route(HostMessage, frozen=True, tag="Route"):
    """Send this slice's inputs to these hosts, unless a higher version says otherwise."""

    version: int
    slice: SliceId
    hosts: tuple[HostId, ...]


class Routed(HostMessage, frozen=True, tag="Routed"):
    """The route is in effect. `sent` has the last numbers on the links from this host's slices: later ones go there."""

    version: int
    slice: SliceId
    sent: dict[SliceId, int]


class Stop(HostMessage, frozen=True, tag="Stop"):
    """Process up to this vector, after which inputs also reach the destination; then stop, and send the state there."""

    migration: int
    slice: SliceId
    destination: HostId
    after: dict[SliceId, int]


class Stopped(HostMessage, frozen=True, tag="Stopped"):
    migration: int
    slice: SliceId


class SliceState(HostMessage, frozen=True, tag="State"):
    """A stopped slice with its timestamp vector and unacknowledged outputs."""

    migration: int
    slice: SliceId
    state: bytes


class Copied(HostMessage, frozen=True, tag="Copied"):
    """The destination has the state durably."""

    migration: int
    slice: SliceId
    size_bytes: int


class Settle(HostMessage, frozen=True, tag="Settle"):
    """The migration is decided: the slice is at its destination from now on, or stays where it was."""

    migration: int
    slice: SliceId
    is_moved: bool


class Settled(HostMessage, frozen=True, tag="Settled"):
    migration: int
    slice: SliceId


Command: TypeAlias = Create | Route | Stop | Settle
Answer: TypeAlias = SliceCreated | Routed | Stopped | Copied | Settled
AnyMessage: TypeAlias = Data | Ack | SliceState | Command | Answer

# ── the stimuli and effects of hosts and managers ─────────────────────────────────────────────────────────────────────


class DataReceived(msgspec.Struct, frozen=True, gc=False, tag="Received"):
    """A message arrived."""

    source: HostId
    message: AnyMessage


class LinkTimerDue(msgspec.Struct, frozen=True, gc=False, tag="Due"):
    """The time of `wakeup_ms` has come."""


class Transmit(msgspec.Struct, frozen=True, gc=False):
    """Send a message, without a delivery guarantee."""

    to: HostId
    message: AnyMessage
