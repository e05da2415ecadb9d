"""Connections over links that lose, duplicate and reorder packets.

As TCP does for the service: frames arrive once and in order, or the connection is lost.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from lavant.broker.federation.frames import LinkFrame

RESEND_MS = 60
SILENCE_MS = 2_000
"""A connection without an acknowledgement for that long is lost."""


class ConnectionId(NamedTuple):
    dialler: str
    start: int
    """Of the dialler's machine."""
    number: int


class LinkSegment(msgspec.Struct, frozen=True):
    """A numbered frame."""

    connection: ConnectionId
    number: int
    frame: LinkFrame


class SegmentAck(msgspec.Struct, frozen=True):
    """All segments up to this number have arrived."""

    connection: ConnectionId
    number: int


class SegmentReset(msgspec.Struct, frozen=True):
    """The connection is not known, or closed."""

    connection: ConnectionId


class SimulatedConnection:
    """One end of a connection."""

    def __init__(self, id: ConnectionId, peer: str, now_ms: int) -> None:
        self.id = id
        self.peer = peer
        self._sent: deque[LinkSegment] = deque()
        self._number = 0
        self._received = 0
        self._early: dict[int, LinkFrame] = {}
        self._resend_ms = 0
        self._heard_ms = now_ms

    def send(self, frame: LinkFrame, now_ms: int) -> LinkSegment:
        self._number += 1
        segment = LinkSegment(self.id, self._number, frame)
        if not self._sent:
            self._heard_ms, self._resend_ms = now_ms, now_ms + RESEND_MS
        self._sent.append(segment)
        return segment

    def arrived(self, segment: LinkSegment) -> tuple[list[LinkFrame], SegmentAck]:
        """The frames that are next in order, and the acknowledgement."""
        if segment.number > self._received:
            self._early[segment.number] = segment.frame
        frames: list[LinkFrame] = []
        while self._received + 1 in self._early:
            self._received += 1
            frames.append(self._early.pop(self._received))
        return frames, SegmentAck(self.id, self._received)

    def acknowledged(self, number: int, now_ms: int) -> None:
        while self._sent and self._sent[0].number <= number:
            self._sent.popleft()
            self._heard_ms = now_ms

    def due(self, now_ms: int) -> list[LinkSegment]:
        """Segments to be sent again."""
        if not self._sent or now_ms < self._resend_ms:
            return []
        self._resend_ms = now_ms + RESEND_MS
        return list(self._sent)[:20]

    def is_lost(self, now_ms: int) -> bool:
        return bool(self._sent) and now_ms - self._heard_ms >= SILENCE_MS

    def wakeup_ms(self) -> int | None:
        return self._resend_ms if self._sent else None
