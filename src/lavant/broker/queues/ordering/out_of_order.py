"""Out-of-order: visible messages stand in one line, and those that return go to its end. Nobody waits for anybody."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from lavant.broker.queues.in_flight import STALE_MIN
from lavant.broker.queues.message import GONE, Message
from lavant.broker.queues.ordering.interface import Turn


class OutOfOrder:
    """Fulfils `Order`. Messages that left stay in line, marked as gone, until their turn comes or they are the most."""

    __slots__ = ("_line",)

    memory = 0

    def __init__(self) -> None:
        self._line: deque[Message] = deque()

    def enter(self, messages: Sequence[Message]) -> None:
        self._line.extend([message for message in messages if not message.visible_ms])

    def appear(self, message: Message) -> None:
        self._line.append(message)

    def return_(self, message: Message) -> None:
        self._line.append(message)

    def release(self, message: Message) -> None:
        self._line.appendleft(message)

    def leave(self, messages: Sequence[Message]) -> None:
        pass

    def finish(self, messages: Sequence[Message]) -> None:
        pass

    def first(self) -> Message | None:
        line = self._line
        while line:
            if line[0].visible_ms != GONE:
                return line[0]
            line.popleft()
        return None

    def take(self, count: int, bytes_max: int) -> list[Message]:
        line = self._line
        taken: list[Message] = []
        while line and len(taken) < count:
            message = line.popleft()
            if message.visible_ms != GONE:
                bytes_max -= len(message.body) + len(message.attributes)
                if bytes_max < 0 and taken:
                    line.appendleft(message)
                    break
                taken.append(message)
        return taken

    def line(self) -> list[int]:
        return [message.number for message in self._line if message.visible_ms != GONE]

    def turns(self) -> list[Turn]:
        return []

    def restore(self, messages: Sequence[Message]) -> None:
        pass

    def restored(self, line: Iterable[Message], turns: Iterable[Turn]) -> None:
        self._line.extend(line)

    def tidy(self, depth: int) -> None:
        if len(self._line) > 2 * depth + STALE_MIN:
            self._line = deque([message for message in self._line if message.visible_ms != GONE])
