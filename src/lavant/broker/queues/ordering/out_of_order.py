"""Out-of-order delivery: visible messages form one list, returned ones go to its end, and none waits for another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from lavant.broker.queues.in_flight import STALE_MIN
from lavant.broker.queues.message import GONE, Message
from lavant.broker.queues.ordering.interface import Turn


class OutOfOrder:
    """Implements `Order`. Removed messages stay listed until their turn comes or most are stale."""

    __slots__ = ("_visible",)

    memory = 0

    def __init__(self) -> None:
        self._visible: deque[Message] = deque()

    def enter(self, messages: Sequence[Message]) -> None:
        self._visible.extend([message for message in messages if not message.visible_ms])

    def appear(self, message: Message) -> None:
        self._visible.append(message)

    def return_(self, message: Message) -> None:
        self._visible.append(message)

    def release(self, message: Message) -> None:
        self._visible.appendleft(message)

    def leave(self, messages: Sequence[Message]) -> None:
        pass

    def finish(self, messages: Sequence[Message]) -> None:
        pass

    def first(self) -> Message | None:
        visible = self._visible
        while visible:
            if visible[0].visible_ms != GONE:
                return visible[0]
            visible.popleft()
        return None

    def take(self, count: int, bytes_max: int) -> list[Message]:
        visible = self._visible
        taken: list[Message] = []
        while visible and len(taken) < count:
            message = visible.popleft()
            if message.visible_ms != GONE:
                bytes_max -= len(message.body) + len(message.attributes)
                if bytes_max < 0 and taken:
                    visible.appendleft(message)
                    break
                taken.append(message)
        return taken

    def visible_order(self) -> list[int]:
        return [message.number for message in self._visible if message.visible_ms != GONE]

    def turns(self) -> list[Turn]:
        return []

    def restore(self, messages: Sequence[Message]) -> None:
        pass

    def restored(self, visible: Iterable[Message], turns: Iterable[Turn]) -> None:
        self._visible.extend(visible)

    def tidy(self, depth: int) -> None:
        if len(self._visible) > 2 * depth + STALE_MIN:
            self._visible = deque([message for message in self._visible if message.visible_ms != GONE])
