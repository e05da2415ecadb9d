"""Dispatch of HTTP requests: health, metrics, the HTTP interface, and SQS.

This is the one ASGI application behind all HTTP connections (`http_server`), whose fast path serves most SQS calls
without it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from lavant.broker.queues.validation import refusal
from lavant.core.errors import NotReady
from lavant.service.http.errors import ApiError, error_of, response_of
from lavant.service.observability.openmetrics import CONTENT_TYPE
from lavant.service.runtime.readiness import Readiness

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_FORM, _AMAZON_JSON = b"application/x-www-form-urlencoded", b"application/x-amz-json"
_QUEUE_PATH = re.compile(r"/|.*/[0-9]{12}/[^/]+/?")
"""Where clients of SQS send their requests: to the server, or to the URL of a queue."""
PLAIN_TEXT = "text/plain; charset=utf-8"
OPERATIONS_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_NOT_HERE = ApiError(404, "NoSuchRoute", "this port serves only /metrics, /healthz and /readyz")
_ONLY_READ = ApiError(405, "NoSuchRoute", "use GET or HEAD here", headers={"Allow": "GET, HEAD"})


class Operations:
    """`/healthz`, `/readyz` and `/metrics`, for operators and their programs.

    `health` returns why the server should be restarted, `readiness` why it should get no requests, or None; a server
    that is only not ready is healthy, and `/healthz` tells both (200, and that it is starting). `remarks`
    lists other problems; `may_see` tells whether a secret gives access to the metrics.
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
            await response_of(_NOT_HERE)(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await response_of(_ONLY_READ)(scope, receive, send)
        elif scope["path"] == "/metrics":
            await self._show_metrics(scope, send)
        else:
            fault = self._faults[scope["path"]]()
            said = fault if fault is not None else self._faults["/readyz"]()  # alive, but perhaps still starting
            remarks = "".join(f"{remark}\n" for remark in self._remarks())
            text = f"{'ok' if said is None else said}\n{remarks}"
            await _respond(scope, send, 200 if fault is None else 503, PLAIN_TEXT, text.encode())

    async def _show_metrics(self, scope: Scope, send: Send) -> None:
        if self._may_see(_bearer(scope)):
            await _respond(scope, send, 200, CONTENT_TYPE, await self._metrics())
        else:
            reason = b"metrics need a key: that of --metrics-key or an operator's, as `Authorization: Bearer KEY`\n"
            await _respond(scope, send, 401, PLAIN_TEXT, reason, (b"www-authenticate", b"Bearer"))


class HttpApplication:
    """Paths under `api_paths` go to the HTTP interface, `paths` to the operations on this port. Of the rest, what looks
    like a request of SQS goes there; the HTTP interface answers other paths with 404.

    Until the server is ready, only operations are answered.
    """

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
        if path in self._paths and (scope["method"] in {"GET", "HEAD"} or not is_sqs(scope)):
            return self._operations
        return self._sqs if is_sqs(scope) else self._api

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Clients of all protocols understand the status."""
        try:
            self._readiness.check()
        except NotReady as error:
            await response_of(error_of(refusal(error)))(scope, receive, send)


def is_sqs(scope: Scope) -> bool:
    """Whether a request is one of SQS: it names an action, is signed as Amazon's clients sign, or has such a body.

    A form counts where SQS has a path: curl's option -d sends one to any.

    >>> request = {"method": "POST", "path": "/", "query_string": b"", "headers": []}
    >>> is_sqs({**request, "headers": [(b"x-amz-target", b"AmazonSQS.SendMessage")]}), is_sqs(request)
    (True, False)
    >>> form = {**request, "headers": [(b"content-type", b"application/x-www-form-urlencoded")]}
    >>> [is_sqs({**form, "path": path}) for path in ("/", "/000000000000/orders", "/nosuch")]
    [True, True, False]
    """
    if b"Action=" in scope["query_string"] or b"X-Amz-" in scope["query_string"]:
        return True
    if scope["method"] in {"GET", "HEAD"}:
        return False
    for name, value in scope["headers"]:
        if name.startswith(b"x-amz-") or (name == b"authorization" and value.startswith(b"AWS")):
            return True
        if name == b"content-type" and value.lower().startswith(_AMAZON_JSON):
            return True
        if name == b"content-type" and value.lower().startswith(_FORM) and _QUEUE_PATH.fullmatch(scope["path"]):
            return True
    return False


def _bearer(scope: Scope) -> str:
    """The bearer token of a request; empty without one."""
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
