"""Effects of a `FederationMachine`, for its world to perform in order."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from lavant.broker.federation.frames import LinkFrame, LinkPublications
from lavant.broker.machine.effects import Effect


class SendFrame(msgspec.Struct, frozen=True, gc=False):
    """To be sent over a connection."""

    connection: Any
    """As the world passed it in."""
    frame: LinkFrame
    is_control: bool = True


class CloseLink(msgspec.Struct, frozen=True, gc=False):
    """To be closed, after everything before it was sent."""

    connection: Any
    reason: str


class RelayPublications(msgspec.Struct, frozen=True, gc=False):
    """Publications of a neighbour, to be matched and delivered; answered by `FederationMachine.relayed`."""

    connection: Any
    number: int
    """Of this relay, for the answer."""
    neighbour: str
    link: str
    batch: LinkPublications
    """With the number of hops up to here."""
    indexes: list[int]
    """Which of the batch are to be relayed."""


class LinkNotice(msgspec.Struct, frozen=True, gc=False):
    """A line for the log."""

    text: str
    is_warning: bool


class FrameReceived(msgspec.Struct, frozen=True, gc=False):
    """A frame that the world answers itself."""

    connection: Any
    neighbour: str
    frame: LinkFrame


class AwaitMatchers(msgspec.Struct, frozen=True, gc=False):
    """To be answered by `FederationMachine.matched` when the matchers know all subscriptions up to now, and everything
    that they matched without them is recorded."""

    token: int


LinkEffect: TypeAlias = Effect | SendFrame | CloseLink | RelayPublications | LinkNotice | FrameReceived | AwaitMatchers
