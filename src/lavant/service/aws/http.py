"""HTTP requests with their bounded bodies, and responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias

from lavant.service.aws.sqs.errors import SqsError
from lavant.service.net.connections import ClientGone

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Decoded."""
    raw_path: str
    """As it came, percent-encoded."""
    query: bytes
    """As it came."""
    headers: dict[bytes, bytes]
    """Names are in lower case; of repeated headers, the last counts."""
    all_headers: list[tuple[bytes, bytes]]
    body: bytes


class HttpResponse(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    """All except the length of the body."""
    body: bytes


def head_of(scope: Scope) -> HttpRequest:
    """Returns a request whose body has not been read."""
    path = scope["path"]
    raw_path = scope.get("raw_path")
    return HttpRequest(
        scope["method"],
        path,
        path if raw_path is None else raw_path.decode("latin-1"),
        scope["query_string"],
        dict(scope["headers"]),
        scope["headers"],
        b"",
    )


def body_bytes(headers: dict[bytes, bytes], bytes_max: int) -> int:
    """Returns the length of the body from the header, or the maximum without one. Raises if it is too long."""
    length = headers.get(b"content-length", b"0" if b"transfer-encoding" not in headers else b"")
    if not length.isdigit():
        return bytes_max
    if len(length) > 18 or int(length) > bytes_max:
        raise _too_large(bytes_max)
    return int(length)


async def read_body(receive: Receive, bytes_max: int) -> bytes:
    """Reads the body; stops and raises when it is too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(bytes_max: int) -> SqsError:
    return SqsError(
        "RequestEntityTooLarge", f"The request is longer than {bytes_max} bytes; send fewer or smaller messages."
    )
