"""Calls about queues. All are repeatable except send (it would make two messages), purge, delete and redrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    CancelMove,
    ChangeVisibility,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Delivery,
    Described,
    DescribeQueue,
    ListMoves,
    ListQueues,
    ListSources,
    MoveState,
    Peek,
    PeekedMessage,
    PurgeQueue,
    Receipt,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    StartMove,
    TagQueue,
    VisibilityChange,
    VisibilityChanged,
)
from lavant.client.arguments import listed
from lavant.client.bodies import Body, body_bytes
from lavant.client.connection.calls import Call, done, refuse_some
from lavant.client.connection.errors import error_of

NEW_QUEUE = QueueConfig()

Leased: TypeAlias = Delivery | Receipt
"""A received message, or only its receipt."""


def create(queue: str, config: QueueConfig, tags: dict[str, str]) -> Call[bool]:
    """Returns whether the queue is new; it may exist with the same settings."""
    return Call(CreateQueue(queue, config, tags), lambda answer: answer.is_new)


def configure(queue: str, config: QueueConfig) -> Call[None]:
    return Call(ConfigureQueue(queue, config), done)


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
    return Call(DescribeQueue(queue), lambda answer: answer)


def send(queue: str, entry: SendEntry) -> Call[int]:
    """Returns the number of the message."""
    return Call(Send(queue, [entry]), _sent_one, is_repeatable=False)


def send_many(queue: str, messages: Iterable[Body | SendEntry], attributes: bytes = b"") -> Call[list[int]]:
    """Returns the numbers of the messages, in order. Bodies are sent with these attributes."""
    given = listed("send_many", messages)
    entries = [each if isinstance(each, SendEntry) else SendEntry(body_bytes(each), attributes) for each in given]
    return Call(Send(queue, entries), _sent, is_repeatable=False)


def receive(queue: str, count: int, visibility_ms: int | None, wait_ms: int | None) -> Call[list[Delivery]]:
    return Call(Receive(queue, count, visibility_ms, wait_ms), _received)


def acknowledge(queue: str, messages: Iterable[Leased], *, is_patient: bool = False) -> Call[None]:
    """With `is_patient`, the server need not sync it at once."""
    return Call(Acknowledge(queue, [_receipt(message) for message in messages], is_patient), _acknowledged)


def change_visibility(queue: str, messages: Iterable[Leased], visibility_ms: int, reason: str = "") -> Call[None]:
    changes = [VisibilityChange(_receipt(message), visibility_ms, reason) for message in messages]
    return Call(ChangeVisibility(queue, changes), _visibility_changed)


def peek(queue: str, count: int, after: int) -> Call[list[PeekedMessage]]:
    return Call(Peek(queue, count, after), lambda answer: answer.messages)


def redrive(source: str, destination: str | None, rate_per_s: int | None) -> Call[int]:
    """Returns the number of the move."""
    request = StartMove(source, destination, rate_per_s)
    return Call(request, lambda answer: answer.task, is_repeatable=False)


def cancel_move(task: int) -> Call[MoveState]:
    return Call(CancelMove(task), lambda answer: answer.state, is_repeatable=False)


def list_moves(source: str) -> Call[list[MoveState]]:
    return Call(ListMoves(source), lambda answer: answer.moves)


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
    return answer.deliveries


def _acknowledged(answer: Acknowledged) -> None:
    refuse_some(answer.refused)


def _visibility_changed(answer: VisibilityChanged) -> None:
    refuse_some(answer.refused)


def _receipt(message: Leased) -> Receipt:
    return message.receipt if isinstance(message, Delivery) else message
