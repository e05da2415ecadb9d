"""In-order: within a group, a message starts when all before it are done; groups go on side by side.

A group is blocked while one of its messages is in flight, though one receive may take several, in order. A message
that returns takes its old place, ahead of later ones; so does one that comes back from a dead-letter queue. One that is
delayed holds up those behind it. Of the groups that can go on, the one whose next message is oldest comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from lavant.broker.queues.hidden import STALE_MIN
from lavant.broker.queues.message import Message

NONE = 0


class Group(msgspec.Struct, gc=False):
    """The messages of one group that are not in flight, by number, and how many are.

    There are no cycles in here for the garbage collector to look for.
    """

    name: str
    first: int = NONE
    """The message that comes next. Those that left stay in here until they have come to the front."""
    rest: int | list[int] = NONE
    """The others: a heap, or the only one. Where there are many groups, most have few messages."""
    in_flight: int = 0
    listed: int = NONE
    """With which message it stands in the line of groups."""

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
    """Fulfils `Order`."""

    __slots__ = ("_groups", "_line", "_messages")

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self._messages = messages
        # There can be as many groups as messages: one whose only message waits is only the number of that message, and
        # stands in line with it unless it is delayed.
        self._groups: dict[str, Group | int] = {}
        # A heap of the first messages of the groups that can go on. An entry is good if its group is listed with it.
        self._line: list[int] = []

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

    def leave(self, messages: Sequence[Message]) -> None:
        for name in {message.group: None for message in messages}:
            group = self._groups[name]
            if isinstance(group, int):
                del self._groups[name]
            else:
                self._list(group)

    def finish(self, messages: Sequence[Message]) -> None:
        for message in messages:
            group = self._group(message.group)
            group.in_flight -= 1
            self._list(group)

    def first(self) -> Message | None:
        line = self._line
        while line:
            message = self._meant_by(line[0])
            if message is not None:
                return message
            heappop(line)
        return None

    def take(self, count: int, bytes_max: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and (first := self.first()) is not None:
            heappop(self._line)
            group = self._group(first.group)
            group.listed = NONE
            bytes_max = self._take_from(group, taken, count, bytes_max)
            if bytes_max < 0:
                self._list(group)
                break
        return taken

    def line(self) -> list[int]:
        return []  # numbers, groups and states of the messages tell it all

    def restore(self, messages: Sequence[Message]) -> None:
        for message in messages:
            group = self._group_for(message)
            if message.visible_ms and message.lease:
                group.in_flight += 1
            else:
                group.push(message.number)

    def restored(self, line: Iterable[Message]) -> None:
        for name in list(self._groups):
            self._list(self._group(name))

    def tidy(self, depth: int) -> None:
        if len(self._line) > 2 * len(self._groups) + STALE_MIN:
            self._line = sorted({entry for entry in self._line if self._meant_by(entry) is not None})

    def _group_for(self, message: Message) -> Group:
        """That of a message which comes in; it may be its first."""
        group = self._groups.get(message.group)
        if group is None:
            group = self._groups[message.group] = Group(message.group)
        elif isinstance(group, int):
            only = self._messages[group]
            group = Group(only.group, group, listed=NONE if only.visible_ms else group)
            self._groups[only.group] = group
        message.group = group.name  # the same text for all, not one copy each
        return group

    def _group(self, name: str) -> Group:
        """One that is there, and does not stand in line: messages are taken from it, or were."""
        group = self._groups[name]
        if isinstance(group, int):
            group = self._groups[name] = Group(name, group)
        return group

    def _meant_by(self, entry: int) -> Message | None:
        """The message of an entry in line, if its group is listed with it."""
        message = self._messages.get(entry)
        if message is None:
            return None
        group = self._groups[message.group]
        return message if isinstance(group, int) or group.listed == entry else None

    def _take_from(self, group: Group, taken: list[Message], count: int, bytes_max: int) -> int:
        """Take what is visible at the group's front; the bytes that are left, negative if another would not fit."""
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

    def _list(self, group: Group) -> None:
        """After every change of a group: it stands in line with its first message, if that can be taken."""
        if group.in_flight:
            return
        messages = self._messages
        while group.first != NONE and group.first not in messages:
            group.pop()
        if group.first == NONE:
            del self._groups[group.name]
            return
        if group.first != group.listed and not messages[group.first].visible_ms:
            group.listed = group.first
            heappush(self._line, group.listed)
        if group.rest == NONE:
            self._groups[group.name] = group.first
