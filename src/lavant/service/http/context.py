"""The context of every route: the broker runtime, the principal of a request, deliveries and counters."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from lavant.broker.protocol.commands import A_co, Answer, Request, RequestFor
from lavant.broker.protocol.queues import Delivery, Refused
from lavant.broker.protocol.registry import checked
from lavant.broker.queues.validation import refusal
from lavant.core.errors import AccessDenied, LavantError
from lavant.service.auth.audit.log import ORIGIN
from lavant.service.auth.authorization import audited, authorize, execute_as, revoked
from lavant.service.auth.keys import KeyRing, Principal
from lavant.service.delivery.registry import Deliveries
from lavant.service.delivery.stream import PrefetchWindow, StreamDelivery
from lavant.service.http.errors import ApiError, error_of
from lavant.service.http.streams.sse_resume import SseResume
from lavant.service.net.connections import RequestConnection, connection_of
from lavant.service.observability.counters import Meters
from lavant.service.observability.logs import tell_of_unknown_key
from lavant.service.runtime.broker_runtime import BrokerRuntime

if TYPE_CHECKING:
    from lavant.service.autoscaling.views import Resources
    from lavant.service.storage.backups.archive import Backup


class ApiContext:
    """Shared by all routes, for the lifetime of the server."""

    def __init__(self, service: BrokerRuntime, keys: KeyRing, meters: Meters, deliveries: Deliveries) -> None:
        self.service = service
        self.limits = service.limits
        self.keys = keys
        self.meters = meters
        self.deliveries = deliveries
        self.sse_resume = SseResume()
        self.resources: Callable[[], Resources | None] | None = None
        """The view of the autoscaler, if there is one."""
        self.telemetry: Path | None = None
        """The directory of telemetry files, if they are written."""
        self.open_backup: Callable[[], Backup] | None = None
        """Opens a backup of the data directory, if there is one."""
        self.stopping = asyncio.Event()
        """Set when the server is about to stop: streams end."""

    def principal(self, connection: HTTPConnection) -> Principal:
        """The principal of a request; raises if the server requires an API key and this has none."""
        scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
        try:
            principal = self.keys.principal(secret.strip().encode() if scheme.lower() == "bearer" else b"")
        except AccessDenied as error:
            tell_of_unknown_key(ORIGIN.get())
            if self.service.audit is not None:
                self.service.audit.not_authenticated(ORIGIN.get(), type(error).__name__)
            raise ApiError(
                401,
                "AccessDenied",
                f"{error}; send it in the header `Authorization: Bearer KEY`",
                headers={"WWW-Authenticate": "Bearer"},
            ) from None
        with http_errors():
            connection_of(connection.scope).authenticated(principal.tenant)
        return principal

    def authorized(self, principal: Principal, request: Request) -> Request:
        """The request in the principal's namespace; raises if its key lacks the scope, or its rate is exceeded."""
        try:
            return authorize(principal, request, time.monotonic())
        except LavantError as error:
            raise error_of(audited(self.service.audit, principal, request, refusal(error))) from None

    async def ask(self, principal: Principal, request: RequestFor[A_co]) -> A_co:
        """Executes a request for the principal, and returns the answer; raises a refusal."""
        answer = checked(request, await self.answer(principal, request))
        if isinstance(answer, Refused):
            raise error_of(answer)
        return answer

    async def answer(
        self, principal: Principal, request: Request, connection: RequestConnection | None = None
    ) -> Answer:
        """Executes a request, and returns the answer or refusal. Raises `ClientGone` if the connection is lost."""
        return await execute_as(self.service.execute, principal, request, connection, audit=self.service.audit)

    def tell(self, principal: Principal, request: Request, answer: Answer) -> None:
        """Writes a request to the audit log that was executed in several parts."""
        audited(self.service.audit, principal, request, answer)

    async def revoked(self, principal: Principal) -> None:
        """Never returns; raises when the principal's key is revoked."""
        told = asyncio.Event()
        principal.revocation.watch(told.set)
        try:
            await told.wait()
        finally:
            principal.revocation.unwatch(told.set)
        self.check(principal)

    def check(self, principal: Principal) -> None:
        """Raises if the principal's key was revoked."""
        if principal.is_revoked:
            raise error_of(refusal(revoked(principal)))

    async def lease(self, window: PrefetchWindow) -> list[Delivery]:
        """The next messages of a stream; raises if its queue is gone."""
        with http_errors():
            return await window.lease()

    @contextmanager
    def stream(self, way: str, principal: Principal) -> Iterator[None]:
        """Counts a stream while it is open; raises if the server or the namespace has as many as it may."""
        streams = self.deliveries[StreamDelivery]
        if streams.open.total() >= self.limits.streams_max:
            raise ApiError(
                429,
                "QuotaExceeded",
                f"{self.limits.streams_max} streams are open, which is the limit; try again later",
                retry_after_s=10,
            )
        with ExitStack() as stack:
            with http_errors():
                stack.enter_context(principal.tenant.stream())
            stack.enter_context(streams.counted(way))
            yield


@contextmanager
def http_errors() -> Iterator[None]:
    """Raises a `LavantError` as the HTTP answer that it stands for."""
    try:
        yield
    except LavantError as error:
        raise error_of(refusal(error)) from None


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def tagged_response(request: HTTPConnection, value: object, tag: str, status: int = 200) -> Response:
    """An answer with an ETag; only 304 if it was asked for and the client has it already."""
    headers = {"ETag": tag}
    if has_already(request, tag):
        return Response(status_code=304, headers=headers)
    return json_response(value, status, headers)


def has_already(request: HTTPConnection, tag: str) -> bool:
    """Whether the request is to read what has this ETag, unless the client has it."""
    known = _tags(request.headers.get("if-none-match", ""))
    return request.scope.get("method") in {"GET", "HEAD"} and (tag in known or known == ["*"])


def must_be_new(request: HTTPConnection) -> bool:
    """Whether the request is to create something, and not to change what exists."""
    return _tags(request.headers.get("if-none-match", "")) == ["*"]


def check_tag(request: HTTPConnection, tag: str) -> None:
    """Raises 412 if the request has an If-Match that does not name the current state."""
    given = request.headers.get("if-match")
    if given is not None and given.strip() != "*" and tag not in _tags(given):
        raise ApiError(
            412, "PreconditionFailed", f"it has changed: its ETag is {tag}, If-Match is {given[:80]}; read it again"
        )


def tag_of(*parts: object) -> str:
    """A strong ETag for this content.

    >>> tag_of(1, "a") == tag_of(1, "a") != tag_of(1, "b")
    True
    """
    return f'"{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:24]}"'


def _tags(header: str) -> list[str]:
    return [each.strip().removeprefix("W/") for each in header.split(",")]
