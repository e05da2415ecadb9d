"""Errors as HTTP answers: a status, and a problem (RFC 9457) with the members `code` and `error` beside its own.

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
from http import HTTPStatus

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from lavant.broker.protocol.queues import Refused
from lavant.core.addresses import http_address
from lavant.core.errors import LimitExceeded, error_class

PROBLEM = "application/problem+json"


class HttpFault(msgspec.Struct, frozen=True):
    """Describes an error."""

    code: str
    """For programs: the name of a class in `lavant.core.errors`, or a code of HTTP's own."""
    reason: str
    """For people: what was wrong, the value, and what to do."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every error answer: a problem as RFC 9457 defines it."""

    type: str
    """`urn:lavant:CODE`."""
    title: str
    """The meaning of the status."""
    status: int
    detail: str
    """For people, as `error.reason`."""
    code: str
    error: HttpFault
    message: str = ""
    """The same again, for those that Amazon's SDKs show."""


def problem(status: int, code: str, reason: str, *, message: str = "") -> bytes:
    """The body of an error answer.

    >>> msgspec.json.decode(problem(404, "UnknownQueue", "there is no queue 'a'"))["title"]
    'Not Found'
    """
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = "Client Closed Request" if status == 499 else "Error"
    fault = HttpFault(code, reason)
    return msgspec.json.encode(Failure(f"urn:lavant:{code}", title, status, reason, code, fault, message))


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
    headers = {"Location": http_address(refused.address)} if refused.address else None
    return ApiError(status, refused.code, refused.reason, retry_after_s=retry_after_s, headers=headers)


def bad_request(reason: str, code: str = "InvalidValue") -> ApiError:
    return ApiError(400, code, reason)


def redirected(error: ApiError, connection: HTTPConnection) -> ApiError:
    """The same error; if it names another broker, then with the whole address of what was asked for."""
    if "Location" in error.headers:
        query = f"?{connection.url.query}" if connection.url.query else ""
        address = error.headers["Location"] + connection.url.path + query
        is_websocket = connection.scope["type"] == "websocket"
        error.headers["Location"] = address.replace("http", "ws", 1) if is_websocket else address
    return error


def response_of(error: ApiError) -> Response:
    return Response(problem(error.status, error.code, error.reason), error.status, error.headers, PROBLEM)
