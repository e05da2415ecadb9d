"""Admission control: bounds connections, unauthenticated ones among them, and the memory that clients occupy.

    accepted ──► unauthenticated ──key or signature──► authenticated ──► gone
       │               └── too many: the oldest of these is closed
       └── too many in all: the new one is closed at once

A connection counts from its accept, before the TLS handshake, until it is gone. It is authenticated with its first
authenticated request, so a client that holds connections open without a key only pushes out others like itself.

`ByteBudget` bounds requests in memory that can only be authenticated when they are complete, `SendBuffers` answers that
clients have not read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Protocol

from lavant.service.auth.tenants import Tenant
from lavant.service.observability.openmetrics import MetricFamily

WARNING_S = 10.0
"""Between two log messages."""

_logger = logging.getLogger(__name__)


class Ticket:
    """One admitted connection. `hang_up` closes it at once; the protocol that owns the connection sets it."""

    __slots__ = ("_admission", "_tenant", "hang_up")

    def __init__(self, admission: ConnectionAdmission) -> None:
        self._admission = admission
        self._tenant: Tenant | None = None
        self.hang_up: Callable[[], object] = _nothing

    def authenticated(self, tenant: Tenant) -> None:
        """Assign the connection to a tenant; raises if the tenant has too many."""
        if tenant is not self._tenant:
            tenant.connect()
            self._leave_tenant()
            self._tenant = tenant
        self._admission.unauthenticated.pop(self, None)

    def leave(self) -> None:
        """The connection is gone. Idempotent."""
        self._leave_tenant()
        self._admission.left(self)

    def _leave_tenant(self) -> None:
        if self._tenant is not None:
            self._tenant.disconnect()
            self._tenant = None


class ConnectionAdmission:
    """Shared by one or several ports.

    >>> from lavant.service.auth.tenants import Tenants
    >>> admission = ConnectionAdmission(connections_max=3, unauthenticated_max=2)
    >>> first, second = admission.admit(), admission.admit()
    >>> first.authenticated(Tenants().of("shop"))
    >>> third = admission.admit()
    >>> admission.admit() is None, len(admission), len(admission.unauthenticated)
    (True, 3, 2)
    """

    def __init__(self, *, connections_max: int, unauthenticated_max: int) -> None:
        self.unauthenticated: dict[Ticket, None] = {}
        """Oldest first."""
        self._connections_max = connections_max
        self._unauthenticated_max = unauthenticated_max
        self._tickets: set[Ticket] = set()
        self._refused = _RateLimitedWarning(f"{connections_max} connections are open, the limit: %d more were refused")
        self._evicted = _RateLimitedWarning(
            f"{unauthenticated_max} connections without a key, the limit: the %d oldest were closed"
        )

    def __len__(self) -> int:
        return len(self._tickets)

    def admit(self) -> Ticket | None:
        """Admit an accepted connection; None if there are too many and it must be closed."""
        if len(self._tickets) >= self._connections_max:
            self._refused.add()
            return None
        if len(self.unauthenticated) >= self._unauthenticated_max:
            self._evicted.add()
            oldest = next(iter(self.unauthenticated))
            del self.unauthenticated[oldest]  # `leave` follows when its connection is gone
            oldest.hang_up()
        ticket = Ticket(self)
        self._tickets.add(ticket)
        self.unauthenticated[ticket] = None
        return ticket

    def left(self, ticket: Ticket) -> None:
        self._tickets.discard(ticket)
        self.unauthenticated.pop(ticket, None)

    def families(self) -> list[MetricFamily]:
        closed = [({"reason": "limit"}, self._refused.total), ({"reason": "unauthenticated"}, self._evicted.total)]
        return [
            MetricFamily(
                "lavant_open_connections", "gauge", "Connections of all protocols.", [({}, len(self._tickets))]
            ),
            MetricFamily(
                "lavant_unauthenticated_connections",
                "gauge",
                "Connections that are not authenticated yet.",
                [({}, len(self.unauthenticated))],
            ),
            MetricFamily("lavant_connections_closed", "counter", "Connections that a limit has ended.", closed),
        ]


class Reservation:
    """Bytes taken from a budget until they are released."""

    __slots__ = ("_budget", "_size_bytes")

    def __init__(self, budget: ByteBudget | None, size_bytes: int) -> None:
        self._budget = budget
        self._size_bytes = size_bytes

    def release(self) -> None:
        """Idempotent."""
        if self._budget is not None:
            self._budget.left_bytes += self._size_bytes
            self._budget = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()


NOTHING_RESERVED = Reservation(None, 0)


class ByteBudget:
    """Memory for the requests of all clients that are not authenticated yet.

    >>> budget = ByteBudget(100)
    >>> first = budget.take(60)
    >>> budget.take(60) is None, first.release(), budget.left_bytes
    (True, None, 100)
    """

    def __init__(self, bytes_max: int) -> None:
        self.left_bytes = bytes_max

    def take(self, size_bytes: int) -> Reservation | None:
        """None if too little is left."""
        if size_bytes > self.left_bytes:
            return None
        self.left_bytes -= size_bytes
        return Reservation(self, size_bytes)


class Reader(Hashable, Protocol):
    def abort(self) -> None:
        """Disconnect at once; calls `forget` before it returns."""
        ...


class SendBuffers:
    """Bounds the answers that clients have not read, since they are in the server's memory.

    A client with more than `unread_bytes_high` is not read from; these count here. When all of them together have more
    than `bytes_max`, the one with the most is disconnected.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._bytes_of: dict[Reader, int] = {}

    def note(self, reader: Reader, size_bytes: int) -> None:
        """Set the bytes that wait for a client."""
        self.bytes += size_bytes - self._bytes_of.get(reader, 0)
        self._bytes_of[reader] = size_bytes
        while self.bytes > self._bytes_max:
            max(self._bytes_of, key=self._bytes_of.__getitem__).abort()

    def forget(self, reader: Reader) -> None:
        """The client has read its answers or is gone."""
        self.bytes -= self._bytes_of.pop(reader, 0)


class _RateLimitedWarning:
    """A rate-limited log message with the number of events since the last one."""

    def __init__(self, text: str) -> None:
        self.total = 0
        self._text = text
        self._told = 0
        self._next_s = 0.0

    def add(self) -> None:
        self.total += 1
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + WARNING_S
            _logger.warning(self._text, self.total - self._told)
            self._told = self.total


def _nothing() -> None:
    pass
