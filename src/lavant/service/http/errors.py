"""Errors as HTTP answers: a status, and `{"error": {"code": …, "reason": …}}`.

The status and Retry-After of each error are declared in `lavant.core.errors`. Routes add statuses for mistakes of HTTP:

| status | the request |
| --- | --- |
| 401, 403 | has no known key; has a key without the scope or namespace |
| 406 | opens a stream of events without asking for one |
| 408, 413, 415 | has a body that arrives too slowly, is too large, or has an unknown content type |

A full disk or queue is 503, not 507, which clients and proxies do not retry.
"""

from __future__ import annotations

import math

import msgspec
from starlette.responses import Response

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import LimitExceeded, error_class


class HttpFault(msgspec.Struct, frozen=True):
    """Describes an error."""

    code: str
    """For programs: the name of a class in `lavant.core.errors`, or a code of HTTP's own."""
    reason: str
    """For people: what was wrong, the value, and what to do."""


class Failure(msgspec.Struct, frozen=True):
    """The body of every error answer."""

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
    """The error that ends a request that was refused."""
    return _refused_with(status_of(refused.code), refused)


def error_of_all(refused: list[Refused], *, too_large: int = 400) -> ApiError:
    """The error if every entry of a request was refused: their common status, or 400."""
    statuses = {too_large if each.code == LimitExceeded.__name__ else status_of(each.code) for each in refused}
    return _refused_with(statuses.pop() if len(statuses) == 1 else 400, refused[0])


def status_of(code: str) -> int:
    return error_class(code).http_status


def _refused_with(status: int, refused: Refused) -> ApiError:
    retry_after_s = error_class(refused.code).http_retry_after_s
    return ApiError(status, refused.code, refused.reason, retry_after_s=retry_after_s)


def bad_request(reason: str, code: str = "InvalidValue") -> ApiError:
    return ApiError(400, code, reason)


def response_of(error: ApiError) -> Response:
    body = msgspec.json.encode(Failure(HttpFault(error.code, error.reason)))
    return Response(body, error.status, error.headers, "application/json")
