"""Which requests have a line in the audit log: administration, and whatever is denied; on demand all commands.

| | line |
| --- | --- |
| an administrative command: queues, subscriptions, advertisements, moves, job types | always |
| a command of data: publish, send, receive, acknowledge, tasks, … | with `is_data`, or if it is denied |
| a query | if it is denied |
| a key or signature that is not known | always |

Whoever is denied again and again has a bounded number of lines a second; the next says how many were left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lavant.broker.protocol.registry import DATA_REQUESTS, QUERIES
from lavant.service.auth.audit.file import AuditFile
from lavant.service.auth.audit.records import DENIED, NOWHERE, Origin, line_of, outcome_of, what_of, who_of
from lavant.service.auth.keys import Principal
from lavant.service.auth.rate_limits import TokenBucket
from lavant.service.observability.openmetrics import MetricFamily

DENIED_PER_S = 10.0
"""Lines about denied requests of one key, and about keys that are not known, of all of those together."""
BUCKETS_MAX = 20_000
AUTHENTICATION, GAP = "Authenticate", "AuditLog"


class _Bounded:
    """Lets so many lines through, and counts the others."""

    __slots__ = ("_bucket", "left_out")

    def __init__(self) -> None:
        self._bucket = TokenBucket(DENIED_PER_S)
        self.left_out = 0

    def passes(self, now_s: float) -> bool:
        if self._bucket.take(1, now_s):
            self.left_out += 1
            return False
        return True

    def told(self) -> dict[str, int]:
        """How many were left out before this one, if any were."""
        left_out, self.left_out = self.left_out, 0
        return {"left_out": left_out} if left_out else {}


class AuditLog:
    """The audit log of one server. Commands that carry data have lines only if `is_data`."""

    def __init__(
        self,
        path: Path,
        *,
        is_data: bool = False,
        clock_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unwanted = QUERIES if is_data else QUERIES | DATA_REQUESTS
        self._clock_s = clock_s
        self._monotonic_s = monotonic_s
        self._strangers = _Bounded()
        self._denied: dict[str, _Bounded] = {}
        self.file = AuditFile(path, self._gap)

    def wants(self, kind: type) -> bool:
        """Whether what comes of such requests is told, also if they are not denied."""
        return kind not in self._unwanted

    def answered(self, principal: Principal, origin: Origin, request: Any, answer: object) -> None:
        """A request was answered, or denied; the answer is None if nobody waited for it."""
        outcome, error = outcome_of(answer)
        more: dict[str, int] = {}
        if outcome == DENIED:
            bounded = self._bounded(principal.name)
            if not bounded.passes(self._monotonic_s()):
                return
            more = bounded.told()
        elif not self.wants(type(request)):
            return
        what = what_of(request, answer) | more
        self._append(type(request).__name__, outcome, error, origin, who_of(principal), what)

    def not_authenticated(self, origin: Origin, error: str) -> None:
        """Somebody showed a key that is not known, or none, or signed wrongly."""
        if self._strangers.passes(self._monotonic_s()):
            self._append(AUTHENTICATION, DENIED, error, origin, {}, self._strangers.told())

    def families(self) -> Iterator[MetricFamily]:
        for name, kind, help, value in (
            ("lines", "counter", "Lines written to the audit log.", self.file.written),
            ("lost", "counter", "Lines that could not be written to the audit log.", self.file.lost),
            ("failing", "gauge", "1 if the audit log cannot be written.", int(self.file.fault is not None)),
        ):
            yield MetricFamily(f"lavant_audit_{name}", kind, help, [({}, value)])

    def _bounded(self, key: str) -> _Bounded:
        if len(self._denied) >= BUCKETS_MAX:  # of keys that are no more, most of them
            self._denied.clear()
        return self._denied.setdefault(key, _Bounded())

    def _gap(self, lost: int) -> bytes:
        return line_of(self._clock_s(), GAP, "lost", "", NOWHERE, {}, {"lines": lost})

    def _append(
        self, action: str, outcome: str, error: str, origin: Origin, who: dict[str, Any], what: dict[str, Any]
    ) -> None:
        self.file.append(line_of(self._clock_s(), action, outcome, error, origin, who, what))
