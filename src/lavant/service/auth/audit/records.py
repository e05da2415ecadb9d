"""What a line of the audit log says: who asked for what, from where, and what came of it.

Names and counts only. Nothing that is not in the tables here gets into a line: no bodies, filters, inputs, results,
settings or tags, no addresses and secrets of webhooks, no keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from lavant.broker.protocol.jobs import DefineJobs, JobSubmitted
from lavant.broker.protocol.queues import MoveStarted, Refused
from lavant.broker.protocol.subscriptions import Advertised, Subscribed
from lavant.core.errors import AccessDenied
from lavant.service.auth.keys import Principal

NAME_CHARACTERS_MAX = 200
NAMES = ("queue", "name", "source", "destination", "topic", "job_type", "job", "task", "worker")
"""Fields of requests that name something."""
COUNTS = {"entries": "messages", "publications": "publications", "receipts": "receipts", "changes": "receipts"}
"""Fields of requests that are lists, and what of."""
ID_CHARACTERS = 12
"""Of the hash of a key; `lavant keys ls` shows as many."""
OK, DENIED, REFUSED, UNKNOWN = "ok", "denied", "refused", "unknown"

_encode = msgspec.json.Encoder().encode


class Origin(NamedTuple):
    """Where a request comes from."""

    protocol: str
    """native, http or sqs"""
    peer: str
    """The address of the other end of the connection."""


NOWHERE = Origin("", "")
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)
"""Of the request that the running task answers; native connections know their own."""


def peer_of(scope: Mapping[str, Any]) -> str:
    """The address in the scope of an HTTP request."""
    client = scope.get("client")
    return "" if client is None else f"{client[0]}:{client[1]}"


def outcome_of(answer: object) -> tuple[str, str]:
    """What came of a request, and the error's code if there was one; None for an answer that nobody waited for."""
    if answer is None:
        return UNKNOWN, ""
    if not isinstance(answer, Refused):
        return OK, ""
    return (DENIED if answer.code == AccessDenied.__name__ else REFUSED), answer.code


def line_of(
    time_s: float, action: str, outcome: str, error: str, origin: Origin, who: dict[str, Any], what: dict[str, Any]
) -> bytes:
    said: dict[str, Any] = {
        "time": datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "action": action,
        "outcome": outcome,
    }
    if error:
        said["error"] = error
    if origin.protocol:
        said |= {"protocol": origin.protocol, "peer": origin.peer}
    return _encode(said | who | what) + b"\n"


def who_of(principal: Principal) -> dict[str, Any]:
    return {
        "key": principal.name,
        "key_id": principal.digest.hex()[:ID_CHARACTERS],
        "namespace": principal.namespace,
        "scopes": sorted(principal.scopes),
    }


def what_of(request: Any, answer: object) -> dict[str, Any]:
    """Names and counts of a request, and the names that the server gave.

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
    return what | _given(answer)


def _given(answer: object) -> dict[str, Any]:
    """Names that the server gave."""
    if isinstance(answer, Subscribed):
        return {"name": answer.subscription.name}
    if isinstance(answer, Advertised):
        return {"name": answer.advertisement.name}
    if isinstance(answer, JobSubmitted):
        return {"job": answer.job}
    return {"task": answer.task} if isinstance(answer, MoveStarted) else {}
