"""Lanes: how far the logs of publications count that are matched later, and how far they are delivered.

    log of a lane    0 ────────── delivered ────────── accepted ─ ─ ─ end
                        in queues       owed to subscribers    not answered: cut off at the next start

A lane is what one namespace publishes under one scheme. Both offsets are part of the broker's state: the record that
puts publications into queues says how far it goes, so a batch that comes twice, before or after a crash, is delivered
once.

A lane that nobody needs any more is forgotten. Those that come later, it among them, begin behind it: no offset of a
lane ever means two publications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import LANE, text_bytes
from lavant.core.errors import InvalidValue

FORGOTTEN = ""
"""Stands for all lanes that were forgotten: new ones begin where it ends."""


class LogOffset(NamedTuple):
    """Offsets of a lane's log."""

    accepted: int = 0
    delivered: int = 0

    @property
    def owed(self) -> int:
        """Publications that were accepted and are in no queue yet."""
        return self.accepted - self.delivered


class LogOffsets:
    """All lanes of a broker, by name."""

    __slots__ = ("_counters", "_lanes")

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._lanes: dict[str, LogOffset] = {}

    def __getitem__(self, name: str) -> LogOffset:
        """One of which nothing was heard yet is at its beginning."""
        lane = self._lanes.get(name)
        return self._lanes.get(FORGOTTEN, _NEW) if lane is None else lane

    def all(self) -> list[tuple[str, LogOffset]]:
        return list(self._lanes.items())

    @property
    def owed(self) -> int:
        return sum(lane.owed for lane in self._lanes.values())

    def check(self, accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Raise unless both only go forward, and nothing is delivered that was not accepted."""
        for name, offset in accepted.items():
            if offset < self[name].accepted:
                raise InvalidValue(
                    f"lane {name!r} is accepted up to {self[name].accepted}, which cannot become {offset}"
                )
        for name, offset in delivered.items():
            lane = self[name]
            if not lane.delivered <= offset <= max(lane.accepted, accepted.get(name, 0)):
                raise InvalidValue(
                    f"lane {name!r} is delivered up to {lane.delivered} of {lane.accepted}: that cannot become {offset}"
                )

    def advance(self, accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """As far as a record says, after a check."""
        for name, offset in accepted.items():
            self._set(name, self[name]._replace(accepted=offset))
        for name, offset in delivered.items():
            self._set(name, self[name]._replace(delivered=offset))

    def check_forget(self, names: Iterable[str], accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Raise if something of them is owed when these offsets hold."""
        for name in names:
            owed = accepted.get(name, self[name].accepted) - delivered.get(name, self[name].delivered)
            if owed:
                raise InvalidValue(f"{owed} publications of lane {name!r} are owed: it cannot be forgotten")

    def forget(self, names: Iterable[str]) -> None:
        """After a check."""
        for name in names:
            if name != FORGOTTEN and name in self._lanes:
                end = max(self._lanes.pop(name).accepted, self[FORGOTTEN].accepted)
                self._counters.memory -= LANE + text_bytes(name)
                self._set(FORGOTTEN, LogOffset(end, end))

    def restore(self, lanes: Iterable[tuple[str, LogOffset]]) -> None:
        for name, lane in lanes:
            self._set(name, lane)

    def _set(self, name: str, lane: LogOffset) -> None:
        if name not in self._lanes:
            self._counters.memory += LANE + text_bytes(name)
        self._lanes[name] = lane


_NEW = LogOffset()
