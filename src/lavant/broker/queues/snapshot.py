"""Snapshots of all queues: a sequence of parts, each encoded in MessagePack.

    Head | for each queue: QueuePart, MessagesPart …, LinePart …, TurnsPart …, NamesPart … | End

Equal states have equal snapshots. Data that follows from the messages is left out: heaps, groups, figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias, TypeVar

import msgspec

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import MoveState
from lavant.broker.queues.accounting.counters import QueueCounters, QueueTotals
from lavant.broker.queues.compatibility import check_rules
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.redrive import Redrives
from lavant.broker.queues.ordering.interface import Turn
from lavant.broker.queues.queue import QueueState, size_of
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, check_format

FORMAT = 2
CHUNK_BYTES = 1 << 20
MESSAGE_BYTES = 64
"""Approximate bytes of a message besides its content."""
CHUNK_NUMBERS = 100_000
CHUNK_NAMES = 10_000

_T = TypeVar("_T")


class _Part(msgspec.Struct, frozen=True, array_like=True):
    pass


class QueuesHead(_Part, tag="head", frozen=True):
    format: int
    now_ms: int
    number: int
    lease: int
    task: int
    serial: int
    moves: list[MoveState]
    rules: int = 0
    """The rules in force when it was taken; see `compatibility`."""


class QueuePart(_Part, tag="queue", frozen=True):
    """A queue; the parts that follow are its messages."""

    name: str
    config: QueueConfig
    tags: dict[str, str]
    created_ms: int
    changed_ms: int
    serial: int
    totals: QueueTotals
    shares_bodies: bool = False
    """Messages with the same body as those of other queues share the object again."""
    arrived_above: int = 0
    """As in `QueueState`."""


class MessagesPart(_Part, tag="messages", frozen=True):
    """Messages in the order of their arrival."""

    messages: list[Message]


class LinePart(_Part, tag="line", frozen=True):
    """Numbers of visible messages in delivery order, where it does not follow from the messages."""

    numbers: list[int]


class TurnsPart(_Part, tag="turns", frozen=True):
    """Groups of an in-order queue whose next message came back, in the order of their turns."""

    turns: list[Turn]


class NamesPart(_Part, tag="names", frozen=True):
    """De-duplication names: expiry time, group if it has names of its own, name, message number."""

    names: list[tuple[int, str | None, str, int]]


class QueuesEnd(_Part, tag="end", frozen=True):
    messages: int


Part: TypeAlias = QueuesHead | QueuePart | MessagesPart | LinePart | TurnsPart | NamesPart | QueuesEnd

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


def encode(directory: Directory, moves: Redrives, counters: QueueCounters, now_ms: int) -> Iterator[bytes]:
    last = (counters.number, counters.lease, counters.task, counters.serial)
    yield _encode(QueuesHead(FORMAT, now_ms, *last, moves.states(), counters.rules))
    messages = 0
    for queue in directory:
        queue.deduplication.forget(now_ms)
        messages += len(queue.messages)
        yield from map(_encode, _parts_of(queue))
    yield _encode(QueuesEnd(messages))


def decode(chunks: Iterable[bytes], directory: Directory, moves: Redrives, counters: QueueCounters) -> int:
    """Fill an empty machine, and return its time."""
    parts = _parts_in(chunks)
    head = next(parts, None)
    if not isinstance(head, QueuesHead):
        raise _corrupt("it does not begin with its head")
    check_format("the snapshot of the queues", head.format, FORMAT, oldest=FORMAT)
    check_rules(head.rules)
    counters.rules = head.rules
    counters.number, counters.lease = head.number, head.lease
    counters.task, counters.serial = head.task, head.serial
    moves.restore(head.moves)
    messages = 0
    filling: _Filling | None = None
    for part in parts:
        if isinstance(part, QueuePart | QueuesEnd) and filling is not None:
            messages += filling.finish()
            filling = None
        if isinstance(part, QueuesEnd):
            if part.messages != messages or next(parts, None) is not None:
                raise _corrupt(f"it ends after {messages} messages, {part.messages} were written")
            counters.memory -= counters.bodies.restored()
            return head.now_ms
        if isinstance(part, QueuePart):
            filling = _Filling(part, directory, counters)
        elif isinstance(part, QueuesHead) or filling is None:
            raise _corrupt("its parts are out of order")
        else:
            filling.add(part)
    raise _corrupt("its end is missing")


class _Filling:
    """A queue whose parts are being read."""

    def __init__(self, part: QueuePart, directory: Directory, counters: QueueCounters) -> None:
        self._queue = QueueState(
            part.name, part.config, part.tags, counters, created_ms=part.created_ms, serial=part.serial
        )
        self._queue.changed_ms = part.changed_ms
        self._queue.totals = part.totals
        self._queue.shares_bodies = part.shares_bodies
        self._queue.arrived_above = part.arrived_above
        self._visible: list[Message] = []
        self._turns: list[Turn] = []
        directory.add(self._queue)

    def add(self, part: MessagesPart | LinePart | TurnsPart | NamesPart) -> None:
        if isinstance(part, MessagesPart):
            _share_times(part.messages)
            self._queue.restore(part.messages)
        elif isinstance(part, LinePart):
            self._visible += map(self._message, part.numbers)
        elif isinstance(part, TurnsPart):
            for turn in part.turns:
                self._message(turn.number)
            self._turns += part.turns
        else:
            for end_ms, group, name, number in part.names:
                self._queue.deduplication.restore(name if group is None else (group, name), number, end_ms)

    def finish(self) -> int:
        """Return the number of messages."""
        self._queue.restored(self._visible, self._turns)
        return len(self._queue.messages)

    def _message(self, number: int) -> Message:
        message = self._queue.messages.get(number)
        if message is None:
            raise _corrupt(f"message {number} of queue {self._queue.name!r} is missing")
        return message


def _parts_of(queue: QueueState) -> Iterator[Part]:
    yield QueuePart(
        queue.name,
        queue.config,
        queue.tags,
        queue.created_ms,
        queue.changed_ms,
        queue.serial,
        queue.totals,
        queue.shares_bodies,
        queue.arrived_above,
    )
    for messages in _by_size(queue.messages.values()):
        yield MessagesPart(messages)
    for numbers in by_count(queue.order.visible_order(), CHUNK_NUMBERS):
        yield LinePart(numbers)
    for turns in by_count(queue.order.turns(), CHUNK_NUMBERS):
        yield TurnsPart(turns)
    for names in by_count(queue.deduplication.remembered(), CHUNK_NAMES):
        yield NamesPart(
            [
                (end_ms, None, key, number) if isinstance(key, str) else (end_ms, *key, number)
                for end_ms, key, number in names
            ]
        )


def _by_size(messages: Iterable[Message]) -> Iterator[list[Message]]:
    chunk: list[Message] = []
    bytes_left = CHUNK_BYTES
    for message in messages:
        chunk.append(message)
        bytes_left -= size_of(message) + MESSAGE_BYTES
        if bytes_left < 0:
            yield chunk
            chunk, bytes_left = [], CHUNK_BYTES
    if chunk:
        yield chunk


def by_count(values: Iterable[_T], count: int) -> Iterator[list[_T]]:
    remaining = iter(values)
    while chunk := list(islice(remaining, count)):
        yield chunk


def _parts_in(chunks: Iterable[bytes]) -> Iterator[Part]:
    for place, chunk in enumerate(chunks):
        try:
            yield _decode(chunk)
        except UNDECODABLE as error:
            raise _corrupt(f"chunk {place} cannot be read ({error})") from None


def _share_times(messages: Iterable[Message]) -> None:
    """Let messages sent together share one time object, as before the snapshot: saves 64 bytes each."""
    sent_ms = entered_ms = 0
    for message in messages:
        if message.sent_ms == sent_ms:
            message.sent_ms = sent_ms
        else:
            sent_ms = message.sent_ms
        if message.entered_ms == sent_ms:
            message.entered_ms = entered_ms = sent_ms
        elif message.entered_ms == entered_ms:
            message.entered_ms = entered_ms
        else:
            entered_ms = message.entered_ms


def _corrupt(problem: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"the snapshot of the queues is damaged: {problem}; restore it from a copy")
