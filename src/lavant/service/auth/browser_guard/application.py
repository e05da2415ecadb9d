"""The guard as ASGI middleware: refuses requests, and adds CORS headers for allowed origins."""

from __future__ import annotations

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lavant.service.auth.browser_guard.rules import BrowserGuard, Refusal
from lavant.service.http.errors import HttpFault

_METHODS = b"GET, POST, PUT, DELETE"
_PREFLIGHT_S = b"600"
"""How long a browser may cache a preflight."""


class _Refused(msgspec.Struct, frozen=True):
    """An error of the HTTP interface, with the member that Amazon's SDKs show."""

    error: HttpFault
    message: str


class Guarded:
    """An application behind the guard."""

    def __init__(self, application: ASGIApp, guard: BrowserGuard) -> None:
        self.application = application
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._guard.refusal(scope)
        origin = self._guard.allowed_origin(scope) if refused is None and scope["type"] == "http" else None
        if refused is not None:
            await _refuse(refused, scope, send)
        elif origin is None:
            await self.application(scope, receive, send)
        elif _is_preflight(scope):
            await _start(send, "http.response", 204, [*_cors(origin), *_permissions(scope)], b"")
        else:
            await self.application(scope, receive, _with_cors(origin, send))


async def _refuse(refused: Refusal, scope: Scope, send: Send) -> None:
    """Refuse, and close the connection: its body, of any size, is not read."""
    body = msgspec.json.encode(_Refused(HttpFault(refused.code, refused.reason), refused.reason))
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    headers.append((b"content-length", str(len(body)).encode()))
    await _start(send, kind, refused.status, headers, b"" if scope.get("method") == "HEAD" else body)


async def _start(send: Send, kind: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


def _is_preflight(scope: Scope) -> bool:
    names = (name for name, _ in scope["headers"])
    return scope["method"] == "OPTIONS" and b"access-control-request-method" in names


def _cors(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]


def _permissions(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Allow all headers that the page wants to send: its origin is trusted."""
    wanted = b", ".join(value for name, value in scope["headers"] if name == b"access-control-request-headers")
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", _PREFLIGHT_S)]
    return [*headers, (b"access-control-allow-headers", wanted)] if wanted else headers


def _with_cors(origin: str, send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_cors(origin)]}
        await send(message)

    return sending
