"""The connection below a stream, as far as a stream has to know it."""

from __future__ import annotations

from typing import Protocol

from starlette.types import Scope

STATE = "connection"
"""Where it is in the scope's state."""


class Connection(Protocol):
    def unsent_bytes(self) -> int:
        """What was written, and the other machine has not confirmed."""
        ...

    def authenticated(self) -> None:
        """It is known who asks."""
        ...

    def abort(self) -> None:
        """Hang up without waiting for what is unsent."""
        ...


def connection_of(scope: Scope) -> Connection:
    connection: Connection = scope["state"][STATE]
    return connection
