"""The SQS protocol over HTTP, without a framework: a request costs little more than its decoding."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from lavant.service.authorization import Execute
from lavant.service.keys import KEYS_MAX, Principal
from lavant.service.sqs.credentials import CredentialRing
from lavant.service.sqs.desk import Call, ClientGone, Desk
from lavant.service.sqs.faults import SqsError
from lavant.service.sqs.http import HttpRequest, HttpResponse, Receive, Scope, Send, disconnected, read_request
from lavant.service.sqs.protocols import WireProtocol, protocol_of
from lavant.service.sqs.settings import SqsSettings

_log = logging.getLogger(__name__)
_HOST = re.compile(r"[A-Za-z0-9._~\[\]:-]{1,260}")


class SqsApp:
    """Answers requests; and is an ASGI 3 application for `http` scopes.

    `execute` has the broker carry out requests that have passed the door. Without credentials everybody may do
    everything outside of namespaces, whatever the signature.
    """

    def __init__(
        self,
        execute: Execute,
        settings: SqsSettings | None = None,
        *,
        credentials: CredentialRing | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = SqsSettings() if settings is None else settings
        self._execute = execute
        self._credentials = CredentialRing() if credentials is None else credentials
        self._changing = asyncio.Lock()
        self._desks: dict[Principal, Desk] = {}
        self._clock_s = clock_s
        # Request ids are for people who compare logs: to be unique is enough, and counting is cheap.
        self._id_prefix = str(uuid.uuid4())[:24]
        self._requests = 0

    @property
    def body_bytes_max(self) -> int:
        return self._settings.body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"SQS is spoken over http, not over {scope['type']}")
        headers = dict(scope["headers"])
        try:
            try:
                http = await read_request(scope, headers, receive, self.body_bytes_max)
            except SqsError as error:
                response = _refused(protocol_of(headers), error, self._next_id())
            else:
                response = await self.answer(http, scope.get("scheme", "http"), lambda: disconnected(receive))
        except ClientGone:
            return
        length = (b"content-length", str(len(response.body)).encode())
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers, length]})
        await send({"type": "http.response.body", "body": response.body})

    async def answer(
        self, http: HttpRequest, scheme: str, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> HttpResponse:
        """`gone` returns when the client is gone; then `ClientGone` is raised, if something was still waited for."""
        request_id = self._next_id()
        protocol = protocol_of(http.headers)
        try:
            desk = self._desk(self._credentials.principal(http, self._clock_s()))
            call = self._call(http.headers, scheme, gone)
            action, request = protocol.decode(http)
            result = await action.perform(desk, call, request)
            body = protocol.encode_result(action, result, request_id)
        except ClientGone:
            raise
        except Exception as raised:  # whatever it is, the client is told in the form that it understands
            error = raised if isinstance(raised, SqsError) else _internal(raised, request_id)
            return _refused(protocol, error, request_id)
        return HttpResponse(200, _headers(protocol, request_id), body)

    def _desk(self, principal: Principal) -> Desk:
        desk = self._desks.get(principal)
        if desk is None:
            if len(self._desks) >= KEYS_MAX:  # of principals that are no more, most of them
                self._desks.clear()
            desk = self._desks[principal] = Desk(self._execute, principal, self._settings, self._changing)
        return desk

    def _next_id(self) -> str:
        self._requests = (self._requests + 1) & 0xFFFF_FFFF_FFFF
        return f"{self._id_prefix}{self._requests:012x}"

    def _call(self, headers: dict[bytes, bytes], scheme: str, gone: Callable[[], Coroutine[Any, Any, None]]) -> Call:
        base_url = self._settings.base_url
        if base_url is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if _HOST.fullmatch(host) is None:
                raise SqsError("InvalidAddress", "The request must have a Host header that names this server.")
            base_url = f"{scheme}://{host}"
        return Call(f"{base_url}/{self._settings.account}/", gone)


def _headers(protocol: WireProtocol, request_id: str) -> list[tuple[bytes, bytes]]:
    return [protocol.content_type, (b"x-amzn-requestid", request_id.encode())]


def _refused(protocol: WireProtocol, error: SqsError, request_id: str) -> HttpResponse:
    headers = _headers(protocol, request_id) + _error_headers(error)
    return HttpResponse(error.fault.status, headers, protocol.encode_error(error, request_id))


def _error_headers(error: SqsError) -> list[tuple[bytes, bytes]]:
    fault = error.fault
    headers = [(b"x-amzn-query-error", f"{fault.code};{'Sender' if fault.is_senders else 'Receiver'}".encode())]
    if error.kind == "RequestEntityTooLarge":
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    return headers


def _internal(raised: Exception, request_id: str) -> SqsError:
    _log.error("request %s failed", request_id, exc_info=raised)
    return SqsError("InternalFailure", f"The server failed; its log says why, at request {request_id}.")
