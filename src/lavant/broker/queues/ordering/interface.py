"""The interface of delivery orders: what out-of-order and in-order queues have in common.

Li, Cui and Ma (see `lavant.broker.queues.machine`) call them consistency options. Out-of-order, any visible message
will do; in-order, an index names the oldest, and the others wait for it (Section 6.5, its place Queue_Index). Here each
message group has such an index.

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
    """The turn of a group whose next message came back."""

    number: int
    """That message."""
    after: int
    """Fresh messages up to this number come before it."""


class Order(Protocol):
    """The waiting messages of a queue, visible or delayed, in delivery order. The queue does leases, counters and
    expiry.
    """

    @property
    def memory(self) -> int:
        """Memory it takes in addition to the messages; already in the machine's count."""

    def enter(self, messages: Sequence[Message]) -> None:
        """Messages entered the queue; each is visible or delayed."""

    def appear(self, message: Message) -> None:
        """A delayed message became visible."""

    def return_(self, message: Message) -> None:
        """A message in flight became visible again."""

    def release(self, message: Message) -> None:
        """The same for a message that was not processed: it goes first, where the order leaves the choice."""

    def leave(self, messages: Sequence[Message]) -> None:
        """Waiting messages left the queue."""

    def finish(self, messages: Sequence[Message]) -> None:
        """Messages in flight left the queue."""

    def first(self) -> Message | None:
        """The message that would be taken next."""

    def take(self, count: int, bytes_max: int) -> list[Message]:
        """Take the next messages, now in flight: at most `count`, and at most `bytes_max` unless it is a single one."""

    def visible_order(self) -> list[int]:
        """Numbers of the visible messages in order, where the messages alone do not tell it."""

    def turns(self) -> list[Turn]:
        """The groups whose next message came back, in the order of their turns."""

    def restore(self, messages: Sequence[Message]) -> None:
        """Add some of a queue's messages after a restart, in any state; `restored` follows the last."""

    def restored(self, visible: Iterable[Message], turns: Iterable[Turn]) -> None:
        """Restore the results of `visible_order` and `turns` from before the restart."""

    def tidy(self, depth: int) -> None:
        """Remove stale entries if they are the majority. The queue has `depth` messages."""
