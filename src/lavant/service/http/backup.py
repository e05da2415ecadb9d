"""`GET /backup`: the data of a running server as one archive, for operators.

The archive holds everything that was confirmed before the request arrived. Files are opened at once and read in a
thread, at the pace of the client, while the server goes on.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from lavant.broker.protocol.queues import Refused
from lavant.core.errors import AccessDenied
from lavant.service.auth.audit.log import ORIGIN
from lavant.service.auth.keys import Principal
from lavant.service.http.context import ApiContext, http_errors
from lavant.service.http.errors import ApiError
from lavant.service.net.connections import connection_of
from lavant.service.storage.backups.archive import Backup

BACKUPS_MAX = 2
"""At the same time: each keeps the disk busy, and its files open."""


class TakeBackup(msgspec.Struct, frozen=True):
    """The request, for the audit log."""


class BackupRoute:
    """An ASGI application for this one path."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._context
        principal = context.principal(Request(scope))
        self._authorize(principal)
        if context.open_backup is None:
            raise ApiError(409, "Conflict", "this server keeps everything in memory only; there is nothing to back up")
        if self._running >= BACKUPS_MAX:
            reason = f"{BACKUPS_MAX} backups are being taken, which is the limit; try again later"
            raise ApiError(429, "QuotaExceeded", reason, retry_after_s=60)
        self._running += 1
        try:
            with http_errors():
                backup = context.open_backup()
            with backup:
                self._audit(principal, None)
                await _send(backup, scope, send)
        finally:
            self._running -= 1

    def _authorize(self, principal: Principal) -> None:
        if principal.is_operator:
            return
        reason = "a backup holds the data of all namespaces: it needs a key with the scope admin and no namespace"
        refused = Refused(AccessDenied.__name__, f"{reason}; key {principal.name!r} is another one")
        self._audit(principal, refused)
        raise ApiError(403, refused.code, refused.reason)

    def _audit(self, principal: Principal, refused: Refused | None) -> None:
        if self._context.service.audit is not None:
            answer = TakeBackup() if refused is None else refused
            self._context.service.audit.answered(principal, ORIGIN.get(), TakeBackup(), answer)


async def _send(backup: Backup, scope: Scope, send: Send) -> None:
    headers = [(b"content-type", b"application/x-tar"), (b"content-length", str(backup.size_bytes).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    connection = connection_of(scope)
    parts = backup.parts()
    while scope["method"] == "GET" and not connection.is_lost:
        part = await asyncio.to_thread(next, parts, b"")
        if not part:
            break
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
