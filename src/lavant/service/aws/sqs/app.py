"""The SQS protocol over HTTP, without a framework: a request costs little more than its decoding."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable

from lavant.broker.queues.validation import refusal as refused_by
from lavant.core.errors import QuotaExceeded
from lavant.service.auth.audit.log import ORIGIN, AuditLog, Origin, peer_of
from lavant.service.auth.authorization import Execute
from lavant.service.auth.keys import KEYS_MAX, Principal
from lavant.service.aws.credentials import CredentialRing
from lavant.service.aws.http import HttpRequest, HttpResponse, Receive, Scope, Send, body_bytes, head_of, read_body
from lavant.service.aws.protocols import WireProtocol, protocol_of
from lavant.service.aws.signature import Claim
from lavant.service.aws.sqs.context import SqsCall, SqsContext
from lavant.service.aws.sqs.errors import NOT_AUTHENTICATED, SqsError, refusal
from lavant.service.aws.sqs.settings import SqsSettings
from lavant.service.net.admission import NOTHING_RESERVED, ByteBudget, Reservation
from lavant.service.net.connections import ClientGone, RequestConnection, connection_of
from lavant.service.observability.logs import tell_of_unknown_key
from lavant.service.runtime.limits import LIMITS

_log = logging.getLogger(__name__)
_HOST = re.compile(r"[A-Za-z0-9._~\[\]:-]{1,260}")


class SqsApp:
    """Answers requests; also an ASGI 3 application for `http` scopes.

    `execute` passes authorised requests to the broker. Without credentials, every client may do everything outside of
    namespaces, whatever the signature.
    """

    def __init__(
        self,
        execute: Execute,
        settings: SqsSettings | None = None,
        *,
        credentials: CredentialRing | None = None,
        unverified_bytes_max: int = LIMITS.unverified_bytes_max,
        audit: AuditLog | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._settings = SqsSettings() if settings is None else settings
        self._execute = execute
        self._audit = audit
        self._credentials = CredentialRing() if credentials is None else credentials
        self._unverified = ByteBudget(unverified_bytes_max)
        self._changing = asyncio.Lock()
        self._contexts: dict[Principal, SqsContext] = {}
        self._clock_s = clock_s
        # Request ids are for comparing logs: they need only be unique, and counting is cheap.
        self._id_prefix = str(uuid.uuid4())[:24]
        self._requests = 0

    @property
    def body_bytes_max(self) -> int:
        return self._settings.body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"SQS is spoken over http, not over {scope['type']}")
        head = head_of(scope)
        try:
            try:
                http, claim = await self._whole(head, receive)
            except SqsError as error:
                self._note(error, peer_of(scope))
                response = _refused(protocol_of(head.headers), error, self._next_id(), is_last=True)
            else:
                response = await self.answer(http, claim, scope.get("scheme", "http"), connection_of(scope))
        except ClientGone:
            return
        length = (b"content-length", str(len(response.body)).encode())
        await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers, length]})
        await send({"type": "http.response.body", "body": response.body})

    def claim(self, head: HttpRequest) -> Claim | None:
        """Returns the claimed signer before the body is read; raises if it cannot be true. None without credentials."""
        return self._credentials.claim(head, self._clock_s())

    def reserve(self, claim: Claim | None, size_bytes: int) -> Reservation:
        """Reserves memory for a body whose signature is not checked yet; raises if there is none left."""
        if claim is None:
            return NOTHING_RESERVED
        reservation = self._unverified.take(size_bytes)
        if reservation is None:
            raise SqsError("ServiceUnavailable", "Too many requests are arriving at the same time; try again.")
        return reservation

    async def _whole(self, head: HttpRequest, receive: Receive) -> tuple[HttpRequest, Claim | None]:
        claim = self.claim(head)
        with self.reserve(claim, body_bytes(head.headers, self.body_bytes_max)):
            return head._replace(body=await read_body(receive, self.body_bytes_max)), claim

    async def answer(
        self, http: HttpRequest, claim: Claim | None, scheme: str, connection: RequestConnection
    ) -> HttpResponse:
        """Answers a request; raises `ClientGone` if the client disconnects while it waits."""
        request_id = self._next_id()
        protocol = protocol_of(http.headers)
        try:
            ORIGIN.set(Origin("sqs", connection.peer))
            principal = self._principal(http, claim, connection)
            context = self._context(principal)
            _connect(connection, principal)
            call = self._call(http.headers, scheme, connection)
            action, request = protocol.decode(http)
            result = await action.perform(context, call, request)
            body = protocol.encode_result(action, result, request_id)
        except ClientGone:
            raise
        except Exception as raised:  # any failure is answered in the client's protocol
            error = raised if isinstance(raised, SqsError) else _internal(raised, request_id)
            return _refused(protocol, error, request_id)
        return HttpResponse(200, _headers(protocol, request_id), body)

    def _principal(self, http: HttpRequest, claim: Claim | None, connection: RequestConnection) -> Principal:
        try:
            return self._credentials.principal(http, claim)
        except SqsError as error:
            self._note(error, connection.peer)
            raise

    def _note(self, error: SqsError, peer: str) -> None:
        """Records a failed authentication in both logs."""
        if error.kind not in NOT_AUTHENTICATED:
            return
        tell_of_unknown_key(Origin("sqs", peer))
        if self._audit is not None:
            self._audit.not_authenticated(Origin("sqs", peer), error.kind)

    def _context(self, principal: Principal) -> SqsContext:
        context = self._contexts.get(principal)
        if context is None:
            if len(self._contexts) >= KEYS_MAX:  # most are of removed principals
                self._contexts.clear()
            context = self._contexts[principal] = SqsContext(
                self._execute, principal, self._settings, self._changing, self._audit
            )
        return context

    def _next_id(self) -> str:
        self._requests = (self._requests + 1) & 0xFFFF_FFFF_FFFF
        return f"{self._id_prefix}{self._requests:012x}"

    def _call(self, headers: dict[bytes, bytes], scheme: str, connection: RequestConnection) -> SqsCall:
        base_url = self._settings.base_url
        if base_url is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if _HOST.fullmatch(host) is None:
                raise SqsError("InvalidAddress", "The request must have a Host header that names this server.")
            base_url = f"{scheme}://{host}"
        return SqsCall(f"{base_url}/{self._settings.account}/", connection)


def _connect(connection: RequestConnection, principal: Principal) -> None:
    try:
        connection.authenticated(principal.tenant)
    except QuotaExceeded as error:
        raise refusal(refused_by(error)) from None


def _headers(protocol: WireProtocol, request_id: str) -> list[tuple[bytes, bytes]]:
    return [protocol.content_type, (b"x-amzn-requestid", request_id.encode())]


def _refused(protocol: WireProtocol, error: SqsError, request_id: str, *, is_last: bool = False) -> HttpResponse:
    """`is_last` closes the connection: the body was not read."""
    headers = _headers(protocol, request_id) + _error_headers(error)
    if is_last:
        headers.append((b"connection", b"close"))
    return HttpResponse(error.fault.status, headers, protocol.encode_error(error, request_id))


def _error_headers(error: SqsError) -> list[tuple[bytes, bytes]]:
    fault = error.fault
    return [(b"x-amzn-query-error", f"{fault.code};{'Sender' if fault.is_senders else 'Receiver'}".encode())]


def _internal(raised: Exception, request_id: str) -> SqsError:
    _log.error("request %s failed", request_id, exc_info=raised)
    return SqsError("InternalFailure", f"The server failed; its log says why, at request {request_id}.")
