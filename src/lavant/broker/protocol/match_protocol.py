"""What a broker and a process that matches for it say to each other.

    process                                              broker
      │  Next  ───────────────────────────────────────────► │
      │  ◄──────────────────────────────── Work(stretches)  │    what was accepted and is not delivered, or nothing
      │  Found(lane, start, …)  ──────────────────────────► │
      │  ◄───────────────────────────────────────── Done    │    in queues, and durable; or Refused: comes again
      │  … for all stretches, in parts; then Next again     │

The process remembers nothing. What it did not report, it is told again: by the next `FetchWork`, or after its next
start. Frames are those of `lavant.broker.protocol.frames`; these requests are no part of what clients may ask.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np

from lavant.broker.matching.interface import Matches
from lavant.broker.protocol.queues import Done, Refused
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.core.errors import InvalidValue
from lavant.core.identities import UNKNOWN


class MatchRequest(msgspec.Struct, frozen=True):
    """What the process is told when it starts, as one line of JSON."""

    port: int
    """Of the broker, on loopback."""
    secret: bytes
    """To be shown there; it changes from start to start."""
    master: str
    """Of Spark."""
    hosts_max: int
    slices: int
    """Of all lanes' subscriptions."""
    directory: str
    """For files on their way, and for what the process remembers of its hosts."""


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class FetchWork(_Value, tag="next", frozen=True):
    """What is there to match? Waits for something for a while."""

    hosts: int = 0
    """On so many it is going to be matched."""
    fault: str = ""
    """Why the last round failed, if it did."""


class MatchResults(_Value, tag="found", frozen=True):
    """Who wants the publications of a lane from offset `start` on: one after the other, none left out."""

    lane: str
    start: int
    ends: bytes
    """Where each publication's list in `ids` ends; unsigned 32-bit integers, little endian, like the ids."""
    ids: bytes

    @classmethod
    def of(cls, lane: str, start: int, matches: Matches) -> MatchResults:
        """Offsets may begin anywhere."""
        first, last = matches.offsets[0], matches.offsets[-1]
        ends = (matches.offsets[1:] - first).astype(INTEGERS).tobytes()
        return cls(lane, start, ends, matches.ids[first:last].astype(INTEGERS, copy=False).tobytes())

    @property
    def end(self) -> int:
        """The offset behind the last publication."""
        return self.start + len(self.ends) // INTEGERS.itemsize

    def matches(self) -> Matches:
        try:
            ends, ids = np.frombuffer(self.ends, INTEGERS), np.frombuffer(self.ids, INTEGERS)
        except ValueError:
            raise InvalidValue("what was found has arrays of 4 bytes for each number") from None
        offsets = np.concatenate([[0], ends.astype(np.int64)])
        if (np.diff(offsets) < 0).any() or offsets[-1] != len(ids):
            raise InvalidValue(f"{len(ends)} lists that end at {offsets[-1]} do not fit {len(ids)} ids")
        return Matches(offsets, ids)


class OffsetRange(_Value, frozen=True):
    """Publications of a lane from one offset up to another, and the version of the subscriptions they are matched with.

    Directories are such that all hosts reach them.
    """

    lane: str
    log: str
    subscriptions: str
    version: int
    start: int
    end: int
    log_identity: str = UNKNOWN
    subscriptions_identity: str = UNKNOWN


class MatchWork(_Value, tag="work", frozen=True):
    stretches: list[OffsetRange]


Request: TypeAlias = FetchWork | MatchResults
Answer: TypeAlias = MatchWork | Done | Refused

decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
