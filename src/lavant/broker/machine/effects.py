"""Effects of a `BrokerMachine`, for its world to perform: append to the journal, reply to clients, write to the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.commands import Answer, Query
from lavant.broker.protocol.registry import COMMANDS

TIME_BYTES = 8


class Record(msgspec.Struct, frozen=True, gc=False):
    """To be appended to the journal: 8 bytes of the time in milliseconds, and the command in MessagePack as it came."""

    position: int
    """Counts up by one from record to record."""
    data: bytes


class Reply(msgspec.Struct, frozen=True, gc=False):
    """To be sent to a client."""

    client: Any
    """As the world passed it in."""
    number: int
    answer: Answer
    queue: str = ""
    """Of an answer that leases messages or tasks: their queue. If the answer cannot be sent, the world calls
    `BrokerMachine.undelivered`, which releases them."""


class Mistake(msgspec.Struct, frozen=True, gc=False):
    """To be written to the log: a query failed because of a bug in the server."""

    request: Query
    error: Exception


Effect: TypeAlias = Record | Reply | Mistake
Observer: TypeAlias = Callable[[Any, Any], None]
"""Called with each applied command of one type, and its answer."""


def composed(*tables: Mapping[type, Observer]) -> dict[type, Observer]:
    """One table of observers by command type; observers of the same type are called one after the other. Raises
    `TypeError` for a type that the journal does not record, since it is never observed."""
    observers: dict[type, Observer] = {}
    for kind, observer in (item for table in tables for item in table.items()):
        if kind not in COMMANDS:
            raise TypeError(f"{kind.__name__} is no command that the journal records; observe one that is")
        observers[kind] = _both(observers[kind], observer) if kind in observers else observer
    return observers


def _both(one: Observer, other: Observer) -> Observer:
    def call(command: Any, answer: Any) -> None:
        one(command, answer)
        other(command, answer)

    return call
