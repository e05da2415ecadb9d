"""The lines of the audit log: which requests have one, and its content.

| request | line |
| --- | --- |
| an administrative command: queues, subscriptions, advertisements, redrives, job types | always |
| a command that carries data: publish, send, receive, acknowledge, tasks, … | with `is_data`, or if it is denied |
| a query | if it is denied |
| any, with an unknown key or signature | always |

A line has names and counts only: no bodies, filters, inputs, results, settings or tags, no addresses and secrets of
webhooks, no keys. Denied requests of one key have a bounded number of lines a second; the next line counts the omitted
ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lavant.broker.protocol.jobs import DefineJobs, JobSubmitted
from lavant.broker.protocol.queues import MoveStarted, Refused
from lavant.broker.protocol.registry import DATA_REQUESTS, QUERIES
from lavant.broker.protocol.subscriptions import Advertised, Subscribed
from lavant.core.errors import AccessDenied
from lavant.service.auth.audit.file import AuditFile
from lavant.service.auth.keys import Principal
from lavant.service.auth.rate_limits import TokenBucket
from lavant.service.observability.openmetrics import MetricFamily

NAME_CHARACTERS_MAX = 200
NAMES = ("queue", "name", "source", "destination", "topic", "job_type", "job", "task", "worker")
"""Fields of requests that are names."""
COUNTS = {"entries": "messages", "publications": "publications", "receipts": "receipts", "changes": "receipts"}
"""Fields of requests that are lists, and what they list."""
ID_CHARACTERS = 12
"""Of the hash of a key, as in `lavant keys ls`."""
OK, DENIED, REFUSED, UNKNOWN = "ok", "denied", "refused", "unknown"

_encode = msgspec.json.Encoder().encode


class Origin(NamedTuple):
    """The source of a request."""

    protocol: str
    """native, http or sqs"""
    peer: str
    """The client's address."""


NOWHERE = Origin("", "")
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)
"""Of the request that the current task answers; native connections have their own."""


def peer_of(scope: Mapping[str, Any]) -> str:
    """The address in the scope of an HTTP request."""
    client = scope.get("client")
    return "" if client is None else f"{client[0]}:{client[1]}"


def outcome_of(answer: object) -> tuple[str, str]:
    """The outcome of a request, and the error's code. The answer is None if the client did not wait for it."""
    if answer is None:
        return UNKNOWN, ""
    if not isinstance(answer, Refused):
        return OK, ""
    return (DENIED if answer.code == AccessDenied.__name__ else REFUSED), answer.code


def line_of(
    time_s: float, action: str, outcome: str, error: str, origin: Origin, who: dict[str, Any], what: dict[str, Any]
) -> bytes:
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "action": action,
        "outcome": outcome,
    }
    if error:
        line["error"] = error
    if origin.protocol:
        line |= {"protocol": origin.protocol, "peer": origin.peer}
    return _encode(line | who | what) + b"\n"


def who_of(principal: Principal) -> dict[str, Any]:
    return {
        "key": principal.name,
        "key_id": principal.digest.hex()[:ID_CHARACTERS],
        "namespace": principal.namespace,
        "scopes": sorted(principal.scopes),
    }


def what_of(request: Any, answer: object) -> dict[str, Any]:
    """Names and counts of a request, and the names that the server generated.

    >>> from lavant.broker.protocol.queues import SendEntry, Send
    >>> what_of(Send("orders", [SendEntry(b"secret")]), None)
    {'queue': 'orders', 'messages': 1}
    """
    what: dict[str, Any] = {}
    for field in NAMES:
        value = getattr(request, field, None)
        if value is not None and value != "":
            what[field] = value if isinstance(value, int) else str(value)[:NAME_CHARACTERS_MAX]
    for field, name in COUNTS.items():
        value = getattr(request, field, None)
        if value is not None:
            what[name] = len(value)
    namespace = getattr(request, "namespace", None)
    if namespace:
        what["in_namespace"] = str(namespace)[:NAME_CHARACTERS_MAX]
    if isinstance(request, DefineJobs) and request.workflows is not None:
        what["job_types"] = len(request.workflows.jobs)
    return what | _generated(answer)


def _generated(answer: object) -> dict[str, Any]:
    """Names that the server generated."""
    if isinstance(answer, Subscribed):
        return {"name": answer.subscription.name}
    if isinstance(answer, Advertised):
        return {"name": answer.advertisement.name}
    if isinstance(answer, JobSubmitted):
        return {"job": answer.job}
    return {"task": answer.task} if isinstance(answer, MoveStarted) else {}


DENIED_PER_S = 10.0
"""Lines about denied requests of one key; about unknown keys, of all of them together."""
BUCKETS_MAX = 20_000
AUTHENTICATION, GAP = "Authenticate", "AuditLog"


class _RateLimited:
    """Limits the rate of lines, and counts the omitted ones."""

    __slots__ = ("_bucket", "left_out")

    def __init__(self) -> None:
        self._bucket = TokenBucket(DENIED_PER_S)
        self.left_out = 0

    def passes(self, now_s: float) -> bool:
        if self._bucket.take(1, now_s):
            self.left_out += 1
            return False
        return True

    def omitted(self) -> dict[str, int]:
        """The number of lines omitted since the last one, if there are any."""
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
        self._unknown_keys = _RateLimited()
        self._denied: dict[str, _RateLimited] = {}
        self.file = AuditFile(path, self._gap)

    def wants(self, kind: type) -> bool:
        """Whether such requests have a line even if they are not denied."""
        return kind not in self._unwanted

    def answered(self, principal: Principal, origin: Origin, request: Any, answer: object) -> None:
        """Log a request with its answer, or None if the client did not wait for it."""
        outcome, error = outcome_of(answer)
        more: dict[str, int] = {}
        if outcome == DENIED:
            limited = self._rate_limited(principal.name)
            if not limited.passes(self._monotonic_s()):
                return
            more = limited.omitted()
        elif not self.wants(type(request)):
            return
        what = what_of(request, answer) | more
        self._append(type(request).__name__, outcome, error, origin, who_of(principal), what)

    def not_authenticated(self, origin: Origin, error: str) -> None:
        """Log a request with an unknown key, without a key, or with a wrong signature."""
        if self._unknown_keys.passes(self._monotonic_s()):
            self._append(AUTHENTICATION, DENIED, error, origin, {}, self._unknown_keys.omitted())

    def families(self) -> Iterator[MetricFamily]:
        for name, kind, help, value in (
            ("lines", "counter", "Lines written to the audit log.", self.file.written),
            ("lost", "counter", "Lines that could not be written to the audit log.", self.file.lost),
            ("failing", "gauge", "1 if the audit log cannot be written.", int(self.file.fault is not None)),
        ):
            yield MetricFamily(f"lavant_audit_{name}", kind, help, [({}, value)])

    def _rate_limited(self, key: str) -> _RateLimited:
        if len(self._denied) >= BUCKETS_MAX:  # mostly of keys that were removed
            self._denied.clear()
        return self._denied.setdefault(key, _RateLimited())

    def _gap(self, lost: int) -> bytes:
        return line_of(self._clock_s(), GAP, "lost", "", NOWHERE, {}, {"lines": lost})

    def _append(
        self, action: str, outcome: str, error: str, origin: Origin, who: dict[str, Any], what: dict[str, Any]
    ) -> None:
        self.file.append(line_of(self._clock_s(), action, outcome, error, origin, who, what))
