"""The SQS protocol as an ASGI application, without a framework: a request costs little more than its decoding."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping

from lavant.service.sqs.desk import Call, ClientGone, Desk, Execute
from lavant.service.sqs.faults import SqsError
from lavant.service.sqs.http import HttpRequest, Receive, Scope, Send, disconnected, read_request
from lavant.service.sqs.protocols import WireProtocol, protocol_of
from lavant.service.sqs.settings import SqsSettings
from lavant.service.sqs.signature import SignatureChecker

_log = logging.getLogger(__name__)
_HOST = re.compile(r"[A-Za-z0-9._~\[\]:-]{1,260}")


class SqsApp:
    """An ASGI 3 application for `http` scopes.

    `execute` carries out the hub's commands. Without credentials (access key to secret), everybody may do everything,
    whatever the signature; an empty mapping of them lets nobody in.
    """

    def __init__(
        self,
        execute: Execute,
        settings: SqsSettings | None = None,
        *,
        credentials: Mapping[str, str] | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = SqsSettings() if settings is None else settings
        self._desk = Desk(execute, self._settings)
        self._checker = None if credentials is None else SignatureChecker(credentials)
        self._clock_s = clock_s
        # Request ids are for people who compare logs: to be unique is enough, and counting is cheap.
        self._id_prefix = str(uuid.uuid4())[:24]
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"SQS is spoken over http, not over {scope['type']}")
        self._requests = (self._requests + 1) & 0xFFFF_FFFF_FFFF
        request_id = f"{self._id_prefix}{self._requests:012x}"
        request_headers = dict(scope["headers"])
        protocol = protocol_of(request_headers)
        status, headers = 200, [protocol.content_type, (b"x-amzn-requestid", request_id.encode())]
        try:
            http = await read_request(scope, request_headers, receive, self._settings.body_bytes_max)
            body = await self._answer(protocol, http, self._call(scope, request_headers, receive), request_id)
        except ClientGone:
            return
        except Exception as raised:  # whatever it is, the client is told in the form that it understands
            error = raised if isinstance(raised, SqsError) else _internal(raised, request_id)
            status, body = error.fault.status, protocol.encode_error(error, request_id)
            headers += _error_headers(error)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, protocol: WireProtocol, http: HttpRequest, call: Call, request_id: str) -> bytes:
        if self._checker is not None:
            self._checker.check(http, self._clock_s())
        action, request = protocol.decode(http)
        return protocol.encode_result(action, await action.perform(self._desk, call, request), request_id)

    def _call(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Call:
        base_url = self._settings.base_url
        if base_url is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if _HOST.fullmatch(host) is None:
                raise SqsError("InvalidAddress", "The request must have a Host header that names this server.")
            base_url = f"{scope.get('scheme', 'http')}://{host}"
        return Call(f"{base_url}/{self._settings.account}/", lambda: disconnected(receive))


def _error_headers(error: SqsError) -> list[tuple[bytes, bytes]]:
    fault = error.fault
    headers = [(b"x-amzn-query-error", f"{fault.code};{'Sender' if fault.is_senders else 'Receiver'}".encode())]
    if error.kind == "RequestEntityTooLarge":
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    return headers


def _internal(raised: Exception, request_id: str) -> SqsError:
    _log.error("request %s failed", request_id, exc_info=raised)
    return SqsError("InternalFailure", f"The server failed; its log says why, at request {request_id}.")
