"""In-order delivery: within a group, a message starts when all before it are done; groups are independent.

A group is blocked while one of its messages is in flight, though one receive may take several, in order. A message that
returns takes its old position, ahead of later ones; so does one that comes back from a dead-letter queue. A delayed
message holds up those behind it.

Of the groups that can go on, the one whose next message is oldest comes first, if that message was never received. A
group whose next message was received in vain goes behind all messages sent so far: otherwise one message that no
consumer can handle would be received again and again and starve all other groups. So groups take turns:

    fresh        by number                         the next message was never received
    returned     by turn, each behind the fresh    the next message was received, and came back
                 messages up to a number
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.accounting.memory import GROUP, text_bytes
from lavant.broker.queues.compatibility import GROUPS_TAKE_TURNS
from lavant.broker.queues.in_flight import STALE_MIN
from lavant.broker.queues.message import Message
from lavant.broker.queues.ordering.interface import Turn

NONE = 0


class MessageGroup(msgspec.Struct, gc=False):
    """The messages of one group that are not in flight, by number, and the count of those that are.

    Holds no reference cycles.
    """

    name: str
    first: int = NONE
    """The next message. Removed messages stay in the group until they reach the front."""
    rest: int | list[int] = NONE
    """The others: a heap, or a single message. Where there are many groups, most have few messages."""
    in_flight: int = 0
    listed: int = NONE
    """The message with which it is listed as receivable."""
    turn: Turn | None = None
    """Its turn among the returned, if it has one."""

    def push(self, number: int) -> None:
        if self.first == NONE:
            self.first = number
            return
        if number < self.first:
            number, self.first = self.first, number
        rest = self.rest
        if isinstance(rest, list):
            heappush(rest, number)
        elif rest == NONE:
            self.rest = number
        else:
            self.rest = [rest, number] if rest < number else [number, rest]

    def pop(self) -> None:
        rest = self.rest
        if isinstance(rest, int):
            self.first = rest
            self.rest = NONE
            return
        self.first = heappop(rest)
        if len(rest) == 1:
            self.rest = rest[0]


class InOrder:
    """Implements `Order`."""

    __slots__ = ("_counters", "_fresh", "_groups", "_messages", "_returned", "memory")

    def __init__(self, messages: Mapping[int, Message], counters: QueueCounters) -> None:
        self.memory = 0
        self._messages = messages
        self._counters = counters
        # There can be as many groups as messages: a group whose only message waits is stored as that message's
        # number, and is listed among the fresh unless the message is delayed.
        self._groups: dict[str, MessageGroup | int] = {}
        # A heap of the first messages of the groups that can go on. An entry is valid if its group is listed
        # with it.
        self._fresh: list[int] = []
        # Groups whose first message came back. An entry is valid if it is its group's turn: the same object.
        self._returned: deque[Turn] = deque()

    def enter(self, messages: Sequence[Message]) -> None:
        for message in messages:
            group = self._group_for(message)
            group.push(message.number)
            self._list(group)

    def appear(self, message: Message) -> None:
        self._list(self._group(message.group))

    def return_(self, message: Message) -> None:
        group = self._group(message.group)
        group.in_flight -= 1
        group.push(message.number)
        self._list(group)

    def release(self, message: Message) -> None:
        self.return_(message)

    def leave(self, messages: Sequence[Message]) -> None:
        for name in {message.group: None for message in messages}:
            group = self._groups[name]
            if isinstance(group, int):
                self._forget(name)
            else:
                self._list(group)

    def finish(self, messages: Sequence[Message]) -> None:
        for message in messages:
            group = self._group(message.group)
            group.in_flight -= 1
            self._list(group)

    def first(self) -> Message | None:
        fresh, returned = self._first_fresh(), self._first_returned()
        if returned is None or (fresh is not None and fresh.number <= self._returned[0].after):
            return fresh
        return returned

    def take(self, count: int, bytes_max: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and (first := self.first()) is not None:
            group = self._group(first.group)
            turn = group.turn
            if turn is None:
                heappop(self._fresh)
            else:
                self._returned.popleft()
            group.listed, group.turn = NONE, None
            bytes_max = self._take_from(group, taken, count, bytes_max)
            if bytes_max < 0:
                if turn is not None and group.first == turn.number:  # it has not had its turn yet
                    group.listed, group.turn = turn.number, turn
                    self._returned.appendleft(turn)
                else:
                    self._list(group)
                break
        return taken

    def visible_order(self) -> list[int]:
        return []  # everything but the turns follows from the messages

    def turns(self) -> list[Turn]:
        return [turn for turn in self._returned if self._is_good(turn)]

    def restore(self, messages: Sequence[Message]) -> None:
        for message in messages:
            group = self._group_for(message)
            if message.visible_ms and message.lease:
                group.in_flight += 1
            else:
                group.push(message.number)

    def restored(self, visible: Iterable[Message], turns: Iterable[Turn]) -> None:
        self._returned = deque(turns)
        for turn in self._returned:
            group = self._group(self._messages[turn.number].group)
            group.listed, group.turn = turn.number, turn
        for name in list(self._groups):
            self._list(self._group(name), takes_turns=False)

    def tidy(self, depth: int) -> None:
        if len(self._fresh) + len(self._returned) > 2 * len(self._groups) + STALE_MIN:
            self._fresh = sorted({entry for entry in self._fresh if self._meant_by(entry) is not None})
            self._returned = deque(self.turns())

    def _first_fresh(self) -> Message | None:
        fresh = self._fresh
        while fresh:
            message = self._meant_by(fresh[0])
            if message is not None:
                return message
            heappop(fresh)
        return None

    def _first_returned(self) -> Message | None:
        returned = self._returned
        while returned:
            if self._is_good(returned[0]):
                return self._messages[returned[0].number]
            returned.popleft()
        return None

    def _is_good(self, turn: Turn) -> bool:
        message = self._messages.get(turn.number)
        if message is None:
            return False
        group = self._groups[message.group]
        return not isinstance(group, int) and group.turn is turn and group.listed == turn.number

    def _group_for(self, message: Message) -> MessageGroup:
        """The group of an incoming message, which may be its first."""
        group = self._groups.get(message.group)
        if group is None:
            group = self._groups[message.group] = MessageGroup(message.group)
            self._hold(GROUP + text_bytes(message.group))
        elif isinstance(group, int):
            only = self._messages[group]
            group = MessageGroup(only.group, group, listed=NONE if only.visible_ms else group)
            self._groups[only.group] = group
        message.group = group.name  # one shared string instead of a copy per message
        return group

    def _group(self, name: str) -> MessageGroup:
        """An existing group that is not listed, because messages are or were taken from it."""
        group = self._groups[name]
        if isinstance(group, int):
            group = self._groups[name] = MessageGroup(name, group)
        return group

    def _meant_by(self, entry: int) -> Message | None:
        """The message of an entry among the fresh, if its group is listed with it there."""
        message = self._messages.get(entry)
        if message is None:
            return None
        group = self._groups[message.group]
        return message if isinstance(group, int) or (group.listed == entry and group.turn is None) else None

    def _take_from(self, group: MessageGroup, taken: list[Message], count: int, bytes_max: int) -> int:
        """Take visible messages from the group's front; return the bytes left, negative if another would not fit."""
        messages = self._messages
        while group.first != NONE and len(taken) < count:
            message = messages.get(group.first)
            if message is not None:
                if message.visible_ms:
                    break
                bytes_max -= len(message.body) + len(message.attributes)
                if bytes_max < 0 and taken:
                    break
                taken.append(message)
                group.in_flight += 1
            group.pop()
        return bytes_max

    def _list(self, group: MessageGroup, *, takes_turns: bool = True) -> None:
        """After every change of a group: list it with its first message, if that can be taken."""
        if group.in_flight:
            return
        messages = self._messages
        while group.first != NONE and group.first not in messages:
            group.pop()
        if group.first == NONE:
            self._forget(group.name)
            return
        first = messages[group.first]
        if group.first != group.listed and not first.visible_ms:
            group.listed, group.turn = group.first, None
            if first.receive_count and takes_turns and self._counters.rules >= GROUPS_TAKE_TURNS:
                group.turn = Turn(group.first, self._counters.number)
                self._returned.append(group.turn)
            else:
                heappush(self._fresh, group.listed)
        if group.rest == NONE and group.turn is None:
            self._groups[group.name] = group.first

    def _forget(self, name: str) -> None:
        """Remove an empty group."""
        del self._groups[name]
        self._hold(-GROUP - text_bytes(name))

    def _hold(self, size_bytes: int) -> None:
        self.memory += size_bytes
        self._counters.memory += size_bytes
