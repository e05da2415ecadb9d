"""Offsets of publication logs that are matched later: accepted, delivered, lag.

    log    0 ────────── delivered ────────── accepted ─ ─ ─ end
              in queues        lag: to be delivered    not answered: truncated at the next start

There is one log per namespace and scheme. Both offsets are part of the broker's state: the record that puts
publications into queues carries the log offset it covers, so a batch that arrives twice, before or after a crash, is
delivered once.

An unused log is forgotten. New logs, including one of the same name, start behind it: no offset of a log ever stands
for two publications.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import LOG_OFFSET, text_bytes
from lavant.core.errors import InvalidValue

FORGOTTEN = ""
"""Stands for all forgotten logs: new ones start where it ends."""


class LogOffset(NamedTuple):
    """Offsets of one log."""

    accepted: int = 0
    delivered: int = 0

    @property
    def lag(self) -> int:
        """Publications accepted but not yet in queues."""
        return self.accepted - self.delivered


class LogOffsets:
    """Offsets of all logs of a broker, by name."""

    __slots__ = ("_counters", "_logs")

    def __init__(self, counters: QueueCounters) -> None:
        self._counters = counters
        self._logs: dict[str, LogOffset] = {}

    def __getitem__(self, name: str) -> LogOffset:
        """A log not known yet is at its start."""
        log = self._logs.get(name)
        return self._logs.get(FORGOTTEN, _NEW) if log is None else log

    def all(self) -> list[tuple[str, LogOffset]]:
        return list(self._logs.items())

    @property
    def lag(self) -> int:
        return sum(log.lag for log in self._logs.values())

    def check(self, accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Raise unless both offsets only advance, and deliveries stay within what was accepted."""
        for name, offset in accepted.items():
            if offset < self[name].accepted:
                raise InvalidValue(
                    f"log {name!r} is accepted up to {self[name].accepted}, which cannot become {offset}"
                )
        for name, offset in delivered.items():
            log = self[name]
            if not log.delivered <= offset <= max(log.accepted, accepted.get(name, 0)):
                raise InvalidValue(
                    f"log {name!r} is delivered up to {log.delivered} of {log.accepted}: that cannot become {offset}"
                )

    def advance(self, accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Advance to the offsets of a checked record."""
        for name, offset in accepted.items():
            self._set(name, self[name]._replace(accepted=offset))
        for name, offset in delivered.items():
            self._set(name, self[name]._replace(delivered=offset))

    def check_forget(self, names: Iterable[str], accepted: Mapping[str, int], delivered: Mapping[str, int]) -> None:
        """Raise if these logs would have a lag at these offsets."""
        for name in names:
            lag = accepted.get(name, self[name].accepted) - delivered.get(name, self[name].delivered)
            if lag:
                raise InvalidValue(f"{lag} publications of log {name!r} are not delivered yet: it cannot be forgotten")

    def forget(self, names: Iterable[str]) -> None:
        """Forget logs that `check_forget` allowed."""
        for name in names:
            if name != FORGOTTEN and name in self._logs:
                end = max(self._logs.pop(name).accepted, self[FORGOTTEN].accepted)
                self._counters.memory -= LOG_OFFSET + text_bytes(name)
                self._set(FORGOTTEN, LogOffset(end, end))

    def restore(self, logs: Iterable[tuple[str, LogOffset]]) -> None:
        for name, log in logs:
            self._set(name, log)

    def _set(self, name: str, log: LogOffset) -> None:
        if name not in self._logs:
            self._counters.memory += LOG_OFFSET + text_bytes(name)
        self._logs[name] = log


_NEW = LogOffset()
