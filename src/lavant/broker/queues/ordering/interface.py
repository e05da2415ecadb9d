"""The order in which the messages of a queue are given out: what the two kinds of queues have in common.

Li, Cui and Ma (see `hub`) call them consistency options. Out-of-order, any visible message will do; in-order, an index
says which one is the oldest, and the others wait for it (Section 6.5, its place Queue_Index). Here each group of
messages has such an index.

    enter ──► waiting ──take──► in flight ──finish──► gone
               │   ▲                │
               │   └ return_, release
               └──leave──► gone
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from lavant.broker.queues.message import Message


class Turn(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a group among those whose next message came back."""

    number: int
    """That message."""
    after: int
    """Fresh messages up to this number come before it."""


class Order(Protocol):
    """The line in which a queue's messages wait, visible or delayed. Who leases, counts and forgets is the queue."""

    @property
    def memory(self) -> int:
        """What it takes beside the messages; it is in the hub's count already."""

    def enter(self, messages: Sequence[Message]) -> None:
        """Messages that came into the queue; each is visible or delayed."""

    def appear(self, message: Message) -> None:
        """A message that was delayed is visible now."""

    def return_(self, message: Message) -> None:
        """A message that was in flight is visible again."""

    def release(self, message: Message) -> None:
        """The same, and nobody has seen it: it comes before all others, where the order leaves the choice."""

    def leave(self, messages: Sequence[Message]) -> None:
        """Messages that were waiting are no longer in the queue."""

    def finish(self, messages: Sequence[Message]) -> None:
        """Messages that were in flight are no longer in the queue."""

    def first(self) -> Message | None:
        """The message that would be taken next."""

    def take(self, count: int, bytes_max: int) -> list[Message]:
        """The next ones, in flight from now on: at most `count`, and at most `bytes_max` unless it is a single one."""

    def line(self) -> list[int]:
        """The numbers of visible messages in order, as far as the messages themselves don't tell it."""

    def turns(self) -> list[Turn]:
        """The groups whose next message came back, in the order of their turns."""

    def restore(self, messages: Sequence[Message]) -> None:
        """Some of a queue's messages after a restart, in whatever state. When all are here, `restored` follows."""

    def restored(self, line: Iterable[Message], turns: Iterable[Turn]) -> None:
        """What `line` and `turns` said before the restart."""

    def tidy(self, depth: int) -> None:
        """Throw out what means nothing any more, if it is the most. The queue has `depth` messages."""
