"""Calls about queues. All are repeatable except send (it would make two messages), purge, delete and redrive."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

from lavant.broker.protocol import queues as protocol
from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX, WAIT_MS_MAX
from lavant.broker.protocol.queue_config import QueueConfig as StoredQueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    CancelMove,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    DescribeQueue,
    EndLongPolls,
    ListMoves,
    ListQueues,
    ListSources,
    Peek,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    Sent,
    StartMove,
    TagQueue,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.client.arguments import listed, milliseconds
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.calls import Call, done, refuse_some
from lavant.client.connection.errors import error_of
from lavant.client.values.mirror import from_protocol, given
from lavant.client.values.queues import Delivery, Described, MoveState, PeekedMessage, QueueConfig, SendEntry
from lavant.core.errors import InvalidValue
from lavant.core.seconds import check_seconds

NEW_QUEUE = QueueConfig()

Leased: TypeAlias = Delivery | Receipt
"""A received message, or only its receipt."""


def create(queue: str, config: QueueConfig, tags: dict[str, str]) -> Call[bool]:
    """Returns whether the queue is new; it may exist with the same settings."""
    return Call(CreateQueue(queue, _stored(config), tags), lambda answer: answer.is_new)


def configure(queue: str, config: QueueConfig) -> Call[None]:
    return Call(ConfigureQueue(queue, _stored(config)), done)


def tag(queue: str, tags: dict[str, str]) -> Call[None]:
    return Call(TagQueue(queue, tags), done)


def delete(queue: str) -> Call[None]:
    return Call(DeleteQueue(queue), done, is_repeatable=False)


def purge(queue: str) -> Call[None]:
    return Call(PurgeQueue(queue), done, is_repeatable=False)


def list_queues(prefix: str, after: str, count: int) -> Call[list[str]]:
    return Call(ListQueues(prefix, after, count), lambda answer: answer.queues)


def list_sources(queue: str) -> Call[list[str]]:
    return Call(ListSources(queue), lambda answer: answer.queues)


def describe(queue: str) -> Call[Described]:
    return Call(DescribeQueue(queue), partial(from_protocol, Described))


def send(queue: str, entry: SendEntry) -> Call[int]:
    """Returns the number of the message."""
    return send_stored(queue, given("a message", entry, SendEntry))


def send_stored(queue: str, entry: protocol.SendEntry) -> Call[int]:
    """The same for an entry as it is sent and stored."""
    return Call(Send(queue, [entry]), _sent_one, is_repeatable=False)


def send_many(queue: str, messages: Iterable[Body | SendEntry], attributes: bytes = b"") -> Call[list[int]]:
    """Returns the numbers of the messages, in order. Bodies are sent with these attributes."""
    entries = [
        given("a message", each, SendEntry)
        if isinstance(each, SendEntry)
        else protocol.SendEntry(body_bytes(each), attributes)
        for each in listed("send_many", messages)
    ]
    return Call(Send(queue, entries), _sent, is_repeatable=False)


def receive(
    queue: str, count: int = 1, *, visibility_s: float | None = None, wait_s: float | None = None
) -> Call[list[Delivery]]:
    visibility_ms = milliseconds("visibility_s", visibility_s, VISIBILITY_MS_MAX)
    return Call(Receive(queue, count, visibility_ms, milliseconds("wait_s", wait_s, WAIT_MS_MAX)), _received)


def prefetch(queue: str, count: int, visibility_ms: int, wait_ms: int) -> Call[list[protocol.Delivery]]:
    """The same for consumers, which turn deliveries into something else."""
    return Call(Receive(queue, count, visibility_ms, wait_ms), lambda answer: answer.deliveries)


def end_long_polls(queue: str) -> Call[None]:
    """Ends this connection's receives that wait there."""
    return Call(EndLongPolls(queue), done)


def acknowledge(queue: str, messages: Iterable[Leased], *, is_patient: bool = False) -> Call[None]:
    """With `is_patient`, the server need not sync it at once."""
    return Call(Acknowledge(queue, [_receipt(message) for message in messages], is_patient), _acknowledged)


def change_visibility(queue: str, messages: Iterable[Leased], *, visibility_s: float, reason: str = "") -> Call[None]:
    check_seconds("visibility_s", visibility_s, high=VISIBILITY_MS_MAX / SECOND_MS)
    visibility_ms = round(visibility_s * SECOND_MS)
    changes = [VisibilityChange(_receipt(message), visibility_ms, reason) for message in messages]
    return Call(ChangeVisibility(queue, changes), _visibility_changed)


def peek(queue: str, count: int, after: int) -> Call[list[PeekedMessage]]:
    return Call(
        Peek(queue, count, after), lambda answer: [from_protocol(PeekedMessage, each) for each in answer.messages]
    )


def redrive(source: str, destination: str | None, rate_per_s: int | None) -> Call[int]:
    """Returns the number of the move."""
    request = StartMove(source, destination, rate_per_s)
    return Call(request, lambda answer: answer.task, is_repeatable=False)


def cancel_move(task: int) -> Call[MoveState]:
    return Call(CancelMove(task), lambda answer: from_protocol(MoveState, answer.state), is_repeatable=False)


def list_moves(source: str) -> Call[list[MoveState]]:
    return Call(ListMoves(source), lambda answer: [from_protocol(MoveState, each) for each in answer.moves])


def _stored(config: QueueConfig) -> StoredQueueConfig:
    return given("config", config, QueueConfig)


def _sent(answer: Sent) -> list[int]:
    entries = answer.entries
    refused = {place: entry for place, entry in enumerate(entries) if isinstance(entry, Refused)}
    refuse_some(refused)
    return [entry.number for entry in entries if not isinstance(entry, Refused)]


def _sent_one(answer: Sent) -> int:
    entry = answer.entries[0]
    if isinstance(entry, Refused):
        raise error_of(entry)
    return entry.number


def _received(answer: Received) -> list[Delivery]:
    return [from_protocol(Delivery, each) for each in answer.deliveries]


def _acknowledged(answer: Acknowledged) -> None:
    refuse_some(answer.refused)


def _visibility_changed(answer: VisibilityChanged) -> None:
    refuse_some(answer.refused)


def _receipt(message: Leased) -> Receipt:
    if isinstance(message, Delivery):
        return message.receipt
    if not isinstance(message, Receipt):
        hint = "; give those of a list as `*messages`" if isinstance(message, list | tuple) else ""
        raise InvalidValue(f"give messages as `receive` returned them, or their receipts, got {message!r:.40}{hint}")
    return message
