"""What a `BrokerServer` wants its world to do: append to the journal, reply to clients, write to the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.commands import Answer, Query

TIME_BYTES = 8


class Record(msgspec.Struct, frozen=True, gc=False):
    """To be appended to the journal: 8 bytes of the time in milliseconds, and the command in MessagePack as it came."""

    position: int
    """Counts up by one from record to record."""
    data: bytes


class Reply(msgspec.Struct, frozen=True, gc=False):
    """To be sent to a client."""

    client: Any
    """Whatever the world gave as the client."""
    number: int
    answer: Answer
    queue: str = ""
    """Of an answer that leases messages or tasks: where they were taken from. If it cannot be handed over, the world
    says so (`BrokerServer.undelivered`), and they go back there."""


class Mistake(msgspec.Struct, frozen=True, gc=False):
    """To be written to the log: a query could not be answered because of a mistake in the server."""

    request: Query
    error: Exception


Effect: TypeAlias = Record | Reply | Mistake
Observer: TypeAlias = Callable[[Any, Any], None]
