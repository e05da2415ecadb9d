"""The connection of an HTTP request, as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from lavant.service.auth.tenants import Tenant

STATE = "connection"
"""Its key in the state of an ASGI scope."""


class ClientGone(Exception):
    """The client is gone; its answer is no longer needed."""


class RequestConnection(Protocol):
    @property
    def peer(self) -> str:
        """The client's address."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the client can no longer be reached."""
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Calls back once if the connection is lost before its answer was written; at once if it is lost already."""
        ...

    def unwatch(self, callback: Callable[[], None]) -> None: ...

    def authenticated(self, tenant: Tenant) -> None:
        """The tenant is known now; raises `QuotaExceeded` if it has too many connections."""
        ...

    def unsent_bytes(self) -> int:
        """Bytes written that the client's machine has not acknowledged."""
        ...

    def abort(self) -> None:
        """Close without sending what is unsent."""
        ...


def connection_of(scope: MutableMapping[str, Any]) -> RequestConnection:
    connection: RequestConnection = scope["state"][STATE]
    return connection
