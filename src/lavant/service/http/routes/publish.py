"""`POST /publish`: publications in several forms, answered when they are durable in all matching queues."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish
from lavant.broker.subscriptions.limits import PUBLICATIONS_MAX
from lavant.core.publications.trace_context import TRACEPARENT, TraceContext, of_headers
from lavant.service.auth.keys import Principal
from lavant.service.http.bodies import JSON, content_type, decode, read_body
from lavant.service.http.context import ApiContext, json_response
from lavant.service.http.errors import ApiError, error_of_all
from lavant.service.http.routes import cloudevents
from lavant.service.http.schemas import PublishAnswer, refused_entries

JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
KEY_HEADER = "idempotency-key"
ACCEPTED = 202

_KINDS = (JSON, *JSON_LINES, cloudevents.STRUCTURED, cloudevents.BATCH)


async def publish(context: ApiContext, request: Request) -> Response:
    principal = context.principal(request)
    body = await read_body(request, context.limits)
    entries = publications_in(content_type(request), request.headers, body)
    context_of_trace = of_headers(request.headers)
    if context_of_trace.parent:
        entries = [_traced(each, context_of_trace) if isinstance(each, bytes) else each for each in entries]
    if len(entries) > PUBLICATIONS_MAX:
        raise ApiError(
            413, "LimitExceeded", f"a request has at most {PUBLICATIONS_MAX} publications, got {len(entries)}"
        )
    with context.meters.publish_seconds.timed():
        try:
            outcome = await _outcome(context, principal, entries, request.headers.get(KEY_HEADER, ""))
        except ApiError as error:
            error.headers |= rate_headers(principal, time.monotonic())
            raise
    refused = {place: each for place, each in enumerate(outcome) if isinstance(each, Refused)}
    context.meters.accepted += len(outcome) - len(refused)
    context.meters.refused += len(refused)
    if len(refused) == len(outcome):
        raise error_of_all(list(refused.values()), too_large=413)
    answer = PublishAnswer(
        accepted=len(outcome) - len(refused),
        ids=[None if isinstance(each, Refused) else each for each in outcome],
        refused=refused_entries(refused),
    )
    return json_response(answer, ACCEPTED, rate_headers(principal, time.monotonic()))


def rate_headers(principal: Principal, now_s: float) -> dict[str, str]:
    """For a key with a rate: how many publications may be sent now, and when a whole second's are there again."""
    bucket = principal.bucket
    if bucket is None:
        return {}
    left = bucket.left(now_s)
    reset_s = max(0, math.ceil((max(1.0, bucket.rate_per_s) - left) / bucket.rate_per_s))
    return {
        "RateLimit-Limit": f"{bucket.rate_per_s:g}",
        "RateLimit-Remaining": str(max(0, math.floor(left))),
        "RateLimit-Reset": str(reset_s),
    }


def _traced(entry: bytes, context: TraceContext) -> bytes:
    """The publication with the context of the request, unless it has its own."""
    start = entry.lstrip()
    if not start.startswith(b"{") or TRACEPARENT.encode() in entry:
        return entry
    rest = start[1:].lstrip()
    members = msgspec.json.encode(context.row())[:-1]
    return members + (b"}" if rest.startswith(b"}") else b"," + rest)


async def _outcome(
    context: ApiContext, principal: Principal, entries: list[bytes | Refused], key: str
) -> list[str | Refused]:
    """Publishes, and returns the id or the refusal of each publication."""
    good = [entry for entry in entries if isinstance(entry, bytes)]
    if not good and entries:
        return [entry for entry in entries if isinstance(entry, Refused)]
    published = iter((await context.ask(principal, Publish(good, key))).entries)
    return [entry if isinstance(entry, Refused) else next(published) for entry in entries]


def publications_in(kind: str, headers: Mapping[str, str], body: bytes) -> list[bytes | Refused]:
    """Each publication as JSON, or its refusal. Entries of an array and lines are examined one by one.

    >>> publications_in("application/json", {}, b'[{"price": 1}, 2]')
    [b'{"price": 1}', b'2']
    >>> publications_in("application/jsonl", {}, b'{"price": 1}\\n\\n{"price": 2}\\n')
    [b'{"price": 1}', b'{"price": 2}']
    """
    if kind == cloudevents.STRUCTURED:
        return [cloudevents.of_json(body)]
    if kind == cloudevents.BATCH:
        return [cloudevents.of_json(event) for event in _array(body)]
    if "ce-specversion" in headers:
        return [cloudevents.of_headers(headers, body)]
    if kind in JSON_LINES:
        return [line for line in body.split(b"\n") if line.strip()]
    if kind != JSON:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"the content type must be {', '.join(_KINDS)}, or that of a CloudEvent; got "
            f"{kind or 'no content type'!r}; curl has the option --json",
        )
    return list(map(bytes, _array(body))) if body.lstrip()[:1] == b"[" else [body]


def _array(body: bytes) -> list[msgspec.Raw]:
    array: list[msgspec.Raw] = decode(body, list[msgspec.Raw])
    return array
