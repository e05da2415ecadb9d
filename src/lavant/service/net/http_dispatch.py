"""HTTP on the server's port: health, metrics, the HTTP interface, and everything else to the SQS protocol.

Here is the one application behind all connections that speak HTTP (`http_connections`), which decides by the path alone
who answers. SQS calls in JSON take the fast path of `http_server` instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from lavant.broker.queues.validation import refusal
from lavant.core.errors import NotReady
from lavant.service.http.errors import error_of, response_of
from lavant.service.observability.openmetrics import CONTENT_TYPE
from lavant.service.runtime.readiness import Readiness

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PLAIN_TEXT = "text/plain; charset=utf-8"
OPERATIONS_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})


class Operations:
    """`/healthz`, `/readyz` and `/metrics`, for operators and their programs.

    `health` says why the server had better be started again, `readiness` why it should get no requests, if it is so;
    `remarks` what else is wrong; `may_see` says who may see the metrics.
    """

    def __init__(
        self,
        *,
        health: Callable[[], str | None],
        readiness: Callable[[], str | None],
        metrics: Callable[[], Awaitable[bytes]],
        may_see: Callable[[str], bool] = lambda secret: True,
        remarks: Callable[[], list[str]] = list,
    ) -> None:
        self._faults = {"/healthz": health, "/readyz": readiness}
        self._metrics = metrics
        self._may_see = may_see
        self._remarks = remarks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in OPERATIONS_PATHS:
            await _respond(scope, send, 404, PLAIN_TEXT, b"here are /metrics, /healthz and /readyz only\n")
        elif scope["method"] not in {"GET", "HEAD"}:
            await _respond(scope, send, 405, PLAIN_TEXT, b"only GET and HEAD\n")
        elif scope["path"] == "/metrics":
            await self._show_metrics(scope, send)
        else:
            fault = self._faults[scope["path"]]()
            said = "".join(f"{remark}\n" for remark in self._remarks())
            status, text = (200, f"ok\n{said}") if fault is None else (503, f"{fault}\n{said}")
            await _respond(scope, send, status, PLAIN_TEXT, text.encode())

    async def _show_metrics(self, scope: Scope, send: Send) -> None:
        if self._may_see(_bearer(scope)):
            await _respond(scope, send, 200, CONTENT_TYPE, await self._metrics())
        else:
            said = b"metrics need a key: that of --metrics-key or an operator's, as `Authorization: Bearer KEY`\n"
            await _respond(scope, send, 401, PLAIN_TEXT, said, (b"www-authenticate", b"Bearer"))


class HttpApplication:
    """What begins with one of `api_paths` is the HTTP interface's; `paths` are those of the operators that are on this
    port; the rest is SQS. Until a server is ready, only operators are answered."""

    def __init__(
        self,
        *,
        operations: Application,
        paths: frozenset[str] = OPERATIONS_PATHS,
        api: Application,
        api_paths: frozenset[str],
        sqs: Application,
        readiness: Readiness,
    ) -> None:
        self._readiness = readiness
        self._operations = operations
        self._paths = paths
        self._api = api
        self._api_paths = api_paths
        self._sqs = sqs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._choose(scope)(scope, receive, send)

    def _choose(self, scope: Scope) -> Application:
        path: str = scope["path"]
        if not self._readiness.is_serving and (path not in self._paths or scope["type"] == "websocket"):
            return self._refuse
        end = path.find("/", 1)
        if (path if end < 0 else path[:end]) in self._api_paths or scope["type"] == "websocket":
            return self._api
        if scope["method"] not in {"GET", "HEAD"}:
            return self._sqs
        if path == "/" and b"Action=" not in scope["query_string"]:
            return self._api
        return self._operations if path in self._paths else self._sqs

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every client understands the status, be it one of SQS."""
        try:
            self._readiness.check()
        except NotReady as error:
            await response_of(error_of(refusal(error)))(scope, receive, send)


def _bearer(scope: Scope) -> str:
    """The secret that a request shows, if it shows one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
    return ""


async def _respond(
    scope: Scope, send: Send, status: int, content_type: str, body: bytes, *more: tuple[bytes, bytes]
) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
