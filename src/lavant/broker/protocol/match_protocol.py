"""The protocol between a broker and the process that matches for it.

    process                                              broker
      │  FetchWork  ──────────────────────────────────────► │
      │  ◄───────────────────────────── MatchWork(ranges)   │    accepted and not yet delivered; empty after a wait
      │  MatchResults(log_name, start, …)  ───────────────► │
      │  ◄───────────────────────────────────────── Done    │    in queues, and durable; or Refused: fetch it again
      │  … for all ranges, in parts; then FetchWork again   │

The process keeps no state: the next `FetchWork`, also after a restart, returns everything that it has not reported.
Frames are those of `lavant.broker.protocol.frames`; clients cannot send these requests.
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
    """The settings of the process when it starts, as one line of JSON."""

    port: int
    """The broker's, on loopback."""
    secret: bytes
    """The key of the connection, new at each start."""
    master: str
    """Spark's master URL."""
    hosts_max: int
    slices: int
    """Number of slices of the subscriptions."""
    directory: str
    """For exchange files, and for the manager's state."""
    driver_host: str | None = None
    archive: str | None = None
    conf: dict[str, str] = {}
    """Further settings of Spark."""


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class FetchWork(_Value, tag="next", frozen=True):
    """Fetch work, waiting for some for a while."""

    hosts: int = 0
    """The number of hosts that will match."""
    fault: str = ""
    """Why the last round failed; empty if it succeeded."""


class MatchResults(_Value, tag="found", frozen=True):
    """The matching subscriptions of consecutive publications of a log, from offset `start`."""

    log_name: str
    start: int
    ends: bytes
    """The end of each publication's list in `ids`; both are arrays of unsigned 32-bit integers, little endian."""
    ids: bytes

    @classmethod
    def of(cls, log_name: str, start: int, matches: Matches) -> MatchResults:
        """Results of a batch of matches, whose offsets may begin anywhere."""
        first, last = matches.offsets[0], matches.offsets[-1]
        ends = (matches.offsets[1:] - first).astype(INTEGERS).tobytes()
        return cls(log_name, start, ends, matches.ids[first:last].astype(INTEGERS, copy=False).tobytes())

    @property
    def end(self) -> int:
        """The offset after the last publication."""
        return self.start + len(self.ends) // INTEGERS.itemsize

    def matches(self) -> Matches:
        try:
            ends, ids = np.frombuffer(self.ends, INTEGERS), np.frombuffer(self.ids, INTEGERS)
        except ValueError:
            raise InvalidValue("match results need arrays of 4 bytes for each number") from None
        offsets = np.concatenate([[0], ends.astype(np.int64)])
        if (np.diff(offsets) < 0).any() or offsets[-1] != len(ids):
            raise InvalidValue(f"{len(ends)} lists that end at {offsets[-1]} do not fit {len(ids)} ids")
        return Matches(offsets, ids)


class OffsetRange(_Value, frozen=True):
    """A range of publications of a log, and the version of the subscriptions to match them with.

    All hosts can read the directories.
    """

    log_name: str
    log: str
    subscriptions: str
    version: int
    start: int
    end: int
    log_identity: str = UNKNOWN
    subscriptions_identity: str = UNKNOWN


class MatchWork(_Value, tag="work", frozen=True):
    ranges: list[OffsetRange]


Request: TypeAlias = FetchWork | MatchResults
Answer: TypeAlias = MatchWork | Done | Refused

decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
