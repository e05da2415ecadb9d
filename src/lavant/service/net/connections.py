"""The connection that an HTTP request came over, as far as those who answer it have to know it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from lavant.service.auth.tenants import Tenant

STATE = "connection"
"""Where it is in the scope's state."""


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class RequestConnection(Protocol):
    @property
    def peer(self) -> str:
        """The address of the other end."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether nothing that is written now reaches the client."""
        ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Called once, if the connection is lost before the answer to its request was handed over; at once if it is."""
        ...

    def unwatch(self, callback: Callable[[], None]) -> None: ...

    def authenticated(self, tenant: Tenant) -> None:
        """It is known who asks; raises `QuotaExceeded` if that one has too many connections."""
        ...

    def unsent_bytes(self) -> int:
        """What was written, and the other machine has not confirmed."""
        ...

    def abort(self) -> None:
        """Hang up without waiting for what is unsent."""
        ...


def connection_of(scope: MutableMapping[str, Any]) -> RequestConnection:
    connection: RequestConnection = scope["state"][STATE]
    return connection
