"""The HTTP interface as one ASGI application."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lavant.service.auth.audit.log import ORIGIN, Origin, peer_of
from lavant.service.http.backup import BackupRoute
from lavant.service.http.context import ApiContext, has_already, tag_of
from lavant.service.http.errors import ApiError, redirected, response_of
from lavant.service.http.openapi import openapi
from lavant.service.http.operation import EVENTS, STREAM, Operation
from lavant.service.http.routes.operations import OPERATIONS
from lavant.service.http.streams.sse import EventStreams
from lavant.service.http.streams.websocket import Streams

PATHS = frozenset({"/openapi.json", "/backup"} | {"/" + operation.path.split("/")[1] for operation in OPERATIONS})
"""First parts of the paths that belong to this application."""

_ABOUT = """\
This is a Lavant server: publish, subscribe by content, durable queues.

  POST /publish                               publish
  POST /subscriptions                         subscribe
  GET  /subscriptions/NAME/events             server-sent events
  GET  /subscriptions/NAME/stream             WebSocket
  PUT  /queues/NAME                           durable queues
  PUT  /workflows, POST /jobs                 jobs as workflows over queues
  GET  /openapi.json                          a description of all routes
  GET  /metrics, /healthz, /readyz, /backup   for operators

Clients of Amazon SQS use this address as their endpoint.
"""


def api_application(context: ApiContext) -> ASGIApp:
    """The application, with the routes of `OPERATIONS`."""
    events, streams = EventStreams(context), Streams(context)
    document = msgspec.json.encode(openapi())
    document_tag = tag_of(document)

    async def about(request: Request) -> Response:
        return PlainTextResponse(_ABOUT)

    async def description(request: Request) -> Response:
        if has_already(request, document_tag):
            return Response(status_code=304, headers={"ETag": document_tag})
        return Response(document, headers={"ETag": document_tag}, media_type="application/json")

    backup = Route("/backup", BackupRoute(context), methods=["GET"])

    def route(operation: Operation) -> BaseRoute:
        path = operation.path.replace("{name}", f"{{name:{_NAME}}}")
        if operation.way == EVENTS:
            return Route(path, events, methods=[operation.method])
        if operation.way == STREAM:
            return WebSocketRoute(path, streams)
        assert operation.handler is not None
        return Route(path, partial(operation.handler, context), methods=[operation.method])

    application = Starlette(
        routes=[Route("/", about), Route("/openapi.json", description), backup, *map(route, OPERATIONS)],
        exception_handlers={
            ApiError: _on_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_gone,
            500: _on_bug,
        },
    )
    application.router.redirect_slashes = False  # a redirect would go to the host of the Host header
    return _Counted(application, context)


class _NameConvertor(StringConvertor):
    """A part of a path in which a slash is written as %2F, as in `namespace/queue`."""

    def convert(self, value: str) -> str:
        return value.replace(_SLASH, "/")


_NAME, _SLASH = "lavant_name", "%2F"
register_url_convertor(_NAME, _NameConvertor())


def _path_of(raw: bytes) -> str:
    """The path with everything decoded but the slashes in its parts.

    >>> _path_of(b"/queues/team%2forders/messages"), _path_of(b"/queues/a%20b")
    ('/queues/team%2Forders/messages', '/queues/a b')
    """
    return "/".join(unquote(part).replace("/", _SLASH) for part in raw.decode("ascii").split("/"))


class _Counted:
    """Counts answers by their status."""

    def __init__(self, application: ASGIApp, context: ApiContext) -> None:
        self._application = application
        self._answers = context.meters.answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ORIGIN.set(Origin("http", peer_of(scope)))
        if _SLASH in scope["raw_path"].decode("latin-1").upper():
            scope["path"] = _path_of(scope["raw_path"])

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers[str(message["status"])] += 1
            await send(message)

        await self._application(scope, receive, counted)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return response_of(redirected(error, request))


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Answers an unknown path or method, and tells OPTIONS which methods there are."""
    assert isinstance(error, HTTPException)
    headers = {"Allow": _methods(request)} if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else {}
    if headers and request.method == "OPTIONS":
        return Response(status_code=204, headers=headers)
    reason = f"{error.detail}: {request.scope.get('method', '')} {request.url.path}; /openapi.json lists all routes"
    return response_of(ApiError(error.status_code, "NoSuchRoute", reason, headers=headers))


def _methods(request: Request) -> str:
    """All methods of a path: each of its routes knows its own."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    found = (each.methods or () for each in routes if each.path_regex.match(request.scope["path"]))
    return ", ".join(sorted({"OPTIONS"}.union(*found)))


async def _on_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client is gone


async def _on_bug(request: Request, error: Exception) -> Response:
    """Hides the error from the client; uvicorn logs it."""
    return response_of(ApiError(500, "InternalError", "the server failed to handle this request; see its log"))
