"""A request as it came over HTTP, with its whole body, which is bounded; and what is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias

from lavant.service.sqs.desk import ClientGone
from lavant.service.sqs.faults import SqsError

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
    """With names in lower case; of those that came twice the last."""
    all_headers: list[tuple[bytes, bytes]]
    body: bytes


class HttpResponse(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    """All but the body's length."""
    body: bytes


async def read_request(scope: Scope, headers: dict[bytes, bytes], receive: Receive, bytes_max: int) -> HttpRequest:
    path = scope["path"]
    raw_path = scope.get("raw_path")
    return HttpRequest(
        scope["method"],
        path,
        path if raw_path is None else raw_path.decode("latin-1"),
        scope["query_string"],
        headers,
        scope["headers"],
        await _body(headers, receive, bytes_max),
    )


async def disconnected(receive: Receive) -> None:
    """Returns when the client is gone; what it still sends is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(headers: dict[bytes, bytes], receive: Receive, bytes_max: int) -> bytes:
    """One that says that it is too long is not read at all, one that is too long not to its end."""
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and (len(length) > 18 or int(length) > bytes_max):
        raise _too_large(bytes_max)
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
