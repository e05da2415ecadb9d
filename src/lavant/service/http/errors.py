"""Errors as HTTP answers: a status, and `{"error": {"code": …, "reason": …}}`.

| status | codes |
| --- | --- |
| 400 | a value that cannot be accepted |
| 401, 403 | no key that is known; a key without the scope or namespace |
| 404, 409 | no such thing; another thing of that name, or somebody else has it by now |
| 406 | a stream of events that was not asked for as one |
| 408, 413, 415 | a body that takes too long, is too large, or of a kind that is not understood |
| 422 | an idempotency key that belongs to a request with other content |
| 429 | too much: of this key, of this namespace, or altogether; Retry-After if time helps |
| 500 | the server made a mistake; its log says more |
| 503 | no room: on disk, or in a queue; Retry-After. Not 507, which clients and proxies do not try again |
"""

from __future__ import annotations

import math

import msgspec
from starlette.responses import Response

from lavant.broker.protocol.queues import Refused

_STATUS = {
    "UnknownSubscription": 404,
    "UnknownAdvertisement": 404,
    "UnknownQueue": 404,
    "UnknownJob": 404,
    "UnknownJobType": 404,
    "UnknownTopic": 404,
    "DuplicateSubscription": 409,
    "QueueExists": 409,
    "IdempotencyConflict": 422,
    "StaleReceipt": 409,
    "NotInFlight": 409,
    "AccessDenied": 403,
    "QuotaExceeded": 429,
    "Overloaded": 429,
    "TooManyInFlight": 429,
    "NotReady": 503,
    "StorageFull": 503,
    "QueueFull": 503,
    "StorageFailed": 500,
    "InternalError": 500,
}
_RETRY_AFTER_S = {"Overloaded": 1.0, "NotReady": 1.0, "TooManyInFlight": 1.0, "StorageFull": 10.0, "QueueFull": 5.0}


class HttpFault(msgspec.Struct, frozen=True):
    """What was wrong."""

    code: str
    """For programs."""
    reason: str
    """For people: what was wrong, the value, what to do."""


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is an error."""

    error: HttpFault


class ApiError(Exception):
    """Ends a request with an error."""

    def __init__(
        self,
        status: int,
        code: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.reason = reason
        self.headers = {} if headers is None else headers
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(math.ceil(retry_after_s))


def error_of(refused: Refused) -> ApiError:
    """A refusal as the error that ends the request."""
    return ApiError(
        status_of(refused.code), refused.code, refused.reason, retry_after_s=_RETRY_AFTER_S.get(refused.code)
    )


def error_of_all(refused: list[Refused], *, too_large: int = 400) -> ApiError:
    """When every entry of a request was refused: the status that they have in common, or 400."""
    statuses = {too_large if each.code == "LimitExceeded" else status_of(each.code) for each in refused}
    first = refused[0]
    status = statuses.pop() if len(statuses) == 1 else 400
    return ApiError(status, first.code, first.reason, retry_after_s=_RETRY_AFTER_S.get(first.code))


def status_of(code: str) -> int:
    return _STATUS.get(code, 400)


def bad_request(reason: str, code: str = "InvalidValue") -> ApiError:
    return ApiError(400, code, reason)


def response_of(error: ApiError) -> Response:
    body = msgspec.json.encode(Failure(HttpFault(error.code, error.reason)))
    return Response(body, error.status, error.headers, "application/json")
