"""What bounds a server's connections."""

from __future__ import annotations

import msgspec

from lavant.broker.serving.wire import FRAME_BYTES_MAX


class ServiceLimits(msgspec.Struct, frozen=True):
    """The defaults are those of `lavant serve`."""

    connections_max: int = 10_000
    greeting_s_max: float = 10.0
    """How long a new connection may take to say which protocol it speaks, and who it is."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    outstanding_max: int = 1024
    """Requests of a connection without an answer, receives that wait for a message not counted; then its requests stay
    unread until some are answered."""
    staged_bytes_max: int = 64 << 20
    """What waits for the disk; then nobody's requests are read."""
    unread_bytes_high: int = 1 << 20
    """Answers that a client has not read; then its requests stay unread until it has read some."""
    unread_bytes_max: int = 64 << 20
    """Then it is disconnected."""
    unread_s_max: float = 60.0
    """A client that reads nothing for so long, though there is something to read, is disconnected."""
    publications_waiting_max: int = 50_000
    """Publications that wait to be matched; then more are refused until there are fewer."""
    publications_waiting_bytes_max: int = 64 << 20
    stop_s_max: float = 5.0
    """How long a server that is stopping waits for its clients to take their answers."""


LIMITS = ServiceLimits()
