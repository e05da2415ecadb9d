"""One queue: its messages and their states.

             ┌── delayed ──┐
             │             │ its delay is over
    sent ────┴─────────────┴──► visible ──received──► in flight ──acknowledged──► gone
                                   ▲                    │
                                   └─ its lease is over ┘

In any state, a message is removed when its retention is over. Retention is checked at whole seconds, all other times to
the millisecond, in the order of (time, number). The state at a time does not depend on when, or how often, the queue
was advanced before.

The ordered structures (delivery order, heap of hidden messages, arrivals) keep entries of removed messages and drop
them when they are the majority, so the cost of a step does not depend on the number of messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from lavant.broker.protocol.queue_config import SECOND_MS, QueueConfig
from lavant.broker.protocol.queues import QueueFigures
from lavant.broker.queues.accounting.counters import QueueCounters, QueueTotals
from lavant.broker.queues.accounting.memory import HIDDEN, MESSAGE, QUEUE, TAG, text_bytes, texts_bytes
from lavant.broker.queues.accounting.quotas import Usage
from lavant.broker.queues.in_flight import STALE_MIN, InFlight
from lavant.broker.queues.message import GONE, Message
from lavant.broker.queues.operations.deduplication import Deduplication
from lavant.broker.queues.ordering.in_order import InOrder
from lavant.broker.queues.ordering.interface import Order, Turn
from lavant.broker.queues.ordering.out_of_order import OutOfOrder
from lavant.broker.queues.ordering.sorted_numbers import SortedNumbers

TIDY_EVERY = 128
"""Removals between two clean-ups. Fewer than a chunk of numbers holds, so stale entries are dropped faster than they
come.
"""


class QueueState:
    """Trusts its caller: requests are checked elsewhere, and time never goes back."""

    __slots__ = (
        "_arrivals",
        "_counters",
        "_numbers",
        "_stale",
        "arrived_above",
        "bytes",
        "changed_ms",
        "config",
        "created_ms",
        "deduplication",
        "delayed",
        "hidden",
        "in_flight",
        "messages",
        "name",
        "order",
        "serial",
        "shares_bodies",
        "tags",
        "totals",
        "usage",
        "wake_ms",
    )

    messages: dict[int, Message]
    """By number, in the order in which they entered the queue."""

    def __init__(
        self,
        name: str,
        config: QueueConfig,
        tags: dict[str, str],
        counters: QueueCounters,
        *,
        created_ms: int,
        serial: int,
    ) -> None:
        self.name = name
        self.serial = serial
        """Unique over all queues that ever existed, including earlier ones of the same name."""
        self.config = config
        self.tags = tags
        self.created_ms = self.changed_ms = created_ms
        self.deduplication = Deduplication(counters)
        self.shares_bodies = False
        """Some messages may share their body with messages of other queues."""
        self.arrived_above = 0
        """The queue came from another broker, and has given the messages that followed it larger numbers than this."""
        self.totals = QueueTotals()
        self.wake_ms: int | None = None
        """When `QueueTimers` advances this queue next."""
        self._counters = counters
        self.usage = Usage()
        """Usage of its namespace, once it is in a directory."""
        self.bytes = 0
        self._stale = 0
        """Entries that became stale since the last clean-up."""
        self._make_empty()

    @property
    def is_in_order(self) -> bool:
        return self.config.order == "in-order"

    # ── entering and leaving
    # ──────────────────────────────────────────────────────────────────────────────────────────

    def enter(self, messages: Sequence[Message], bytes_added: int) -> None:
        """Add messages that were just sent, with the largest numbers so far, visible or delayed."""
        by_number = self.messages
        for message in messages:
            by_number[message.number] = message
            if message.visible_ms:
                self.delayed += 1
                self.hidden.add((message,), message.visible_ms)
                self._counters.memory += HIDDEN
        self._numbers.extend([message.number for message in messages])
        self._came(messages, bytes_added)

    def move_in(self, message: Message) -> None:
        """Add a visible message from another queue, with any number."""
        if self.shares_bodies:
            self._counters.memory -= self._counters.bodies.join(message)
        self.messages[message.number] = message
        self._numbers.add(message.number)
        self._came((message,), size_of(message))

    def lease(self, messages: Sequence[Message], visible_ms: int, now_ms: int) -> None:
        """Lease messages taken from the order until `visible_ms`. If that is now, give them back at once."""
        lease = self._counters.lease
        for message in messages:
            lease += 1
            message.lease = lease
            message.visible_ms = visible_ms
            if not message.receive_count:
                message.first_received_ms = now_ms
            message.receive_count += 1
        if messages and visible_ms > now_ms:
            self.hidden.add(messages, visible_ms)
        self._counters.lease = lease
        self._counters.memory += len(messages) * HIDDEN
        self.in_flight += len(messages)
        self.totals.received += len(messages)

    def extend(self, message: Message, visible_ms: int) -> None:
        """Change the end of a message's lease."""
        message.visible_ms = visible_ms
        self.hidden.add((message,), visible_ms)
        self._stale += 1

    def fail(self, message: Message, reason: str) -> None:
        """Keep why an attempt failed."""
        added = len(reason) - len(message.reason)
        message.reason = reason
        self._hold(0, added)

    def give_back(self, message: Message) -> None:
        """Make a message in flight visible again."""
        message.visible_ms = 0
        self.in_flight -= 1
        self._counters.memory -= HIDDEN
        self.totals.returned += 1
        self.order.return_(message)

    def release(self, messages: Sequence[Message]) -> None:
        """Make messages in flight visible again, ahead of all others and as if they had not been received."""
        for message in reversed(messages):
            message.visible_ms = 0
            message.receive_count -= 1
            if not message.receive_count:
                message.first_received_ms = 0
            self.order.release(message)
        self.in_flight -= len(messages)
        self._counters.memory -= len(messages) * HIDDEN
        self.totals.returned += len(messages)

    def remove(self, messages: Sequence[Message]) -> None:
        """Complete the removal of messages just taken out of `messages`, in any state."""
        in_flight = [message for message in messages if message.visible_ms and message.lease]
        hidden = len(in_flight)
        self.in_flight -= hidden
        if len(in_flight) < len(messages):
            waiting = [message for message in messages if not (message.visible_ms and message.lease)]
            delayed = sum(1 for message in waiting if message.visible_ms)
            hidden += delayed
            self.delayed -= delayed
            self.order.leave(waiting)
        self.order.finish(in_flight)
        self._counters.memory -= hidden * HIDDEN
        self._went(messages)
        if not self.messages:
            self.messages.clear()  # only then does a dictionary that was large shrink
            self.shares_bodies = False

    def move_out(self, message: Message) -> None:
        """Remove a message taken from the order, and not leased, that moves to another queue."""
        del self.messages[message.number]
        self.order.finish((message,))
        self._went((message,))

    def purge(self) -> None:
        """Remove all messages in any state. De-duplication names are left to the caller."""
        kept = self._counters.bodies.release(self.messages.values()) if self.shares_bodies else 0
        hidden = self.in_flight + self.delayed
        self._counters.memory -= len(self.messages) * MESSAGE + hidden * HIDDEN + self.bytes - kept + self.order.memory
        self._counters.bytes -= self.bytes
        self.usage.bytes -= self.bytes
        self._make_empty()

    def _make_empty(self) -> None:
        self.shares_bodies = False
        self.messages = {}
        self.bytes = self.in_flight = self.delayed = 0
        self.hidden = InFlight(self.messages)
        self.order: Order = InOrder(self.messages, self._counters) if self.is_in_order else OutOfOrder()
        self._arrivals: deque[Message] = deque()
        self._numbers = SortedNumbers()

    def restore(self, messages: Sequence[Message]) -> None:
        """After a restart: add the next messages in the order of arrival, in any state."""
        if self.shares_bodies:
            self._counters.memory -= self._counters.bodies.restore(messages)
        for message in messages:
            self.messages[message.number] = message
            if message.visible_ms:
                self._counters.memory += HIDDEN
                self.hidden.add((message,), message.visible_ms)
                if message.lease:
                    self.in_flight += 1
                else:
                    self.delayed += 1
        self._arrivals.extend(messages)
        self.order.restore(messages)
        self._hold(len(messages), sum(map(size_of, messages)))

    def restored(self, visible: Iterable[Message], turns: Iterable[Turn]) -> None:
        """Restore the delivery order, after all messages."""
        self._numbers = SortedNumbers(self.messages)
        self.order.restored(visible, turns)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self, now_ms: int) -> None:
        """Apply everything that is due until now."""
        for message in self.hidden.due(now_ms):
            self._expire(message.visible_ms)  # in the order of time: a removed message unblocks its group
            if message.visible_ms == GONE:
                continue
            if message.lease:
                self.give_back(message)
            else:
                message.visible_ms = 0
                self.delayed -= 1
                self._counters.memory -= HIDDEN
                self.order.appear(message)
        self._expire(now_ms)

    def _expire(self, now_ms: int) -> None:
        """Remove messages whose retention is over."""
        while (oldest := self.oldest()) is not None and self._expires_ms(oldest) <= now_ms:
            del self.messages[oldest.number]
            self.remove((oldest,))
            self.totals.expired += 1

    def next_ms(self) -> int | None:
        """When the next message becomes visible or expires."""
        oldest = self.oldest()
        if oldest is None:
            return None
        expires_ms = self._expires_ms(oldest)
        hidden_ms = self.hidden.next_ms()
        return expires_ms if hidden_ms is None or hidden_ms > expires_ms else hidden_ms

    def oldest(self) -> Message | None:
        """The message that has been here longest."""
        arrivals = self._arrivals
        while arrivals and arrivals[0].visible_ms == GONE:
            arrivals.popleft()
        return arrivals[0] if arrivals else None

    def tidy(self) -> None:
        """Drop stale entries where they are the majority. Call it once per request."""
        looks, self._stale = divmod(self._stale, TIDY_EVERY)
        if not looks:
            return
        depth = len(self.messages)
        self.hidden.tidy(self.in_flight + self.delayed)
        self.order.tidy(depth)
        # Each stale entry here is a whole message without its body, so there may not be many.
        if len(self._arrivals) > depth + depth // 4 + STALE_MIN:
            self._arrivals = deque(self.messages.values())
        for _ in range(looks):
            self._numbers.tidy(self.messages)

    # ── queries
    # ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def above(self, number: int, count: int) -> list[Message]:
        """The next messages above a number, in any state."""
        return [self.messages[each] for each in islice(self._numbers.above(number, self.messages), count)]

    def figures(self) -> QueueFigures:
        oldest, totals = self.oldest(), self.totals
        return QueueFigures(
            visible=len(self.messages) - self.in_flight - self.delayed,
            in_flight=self.in_flight,
            delayed=self.delayed,
            bytes=self.bytes,
            oldest_sent_ms=None if oldest is None else oldest.entered_ms,
            sent=totals.sent,
            received=totals.received,
            acknowledged=totals.acknowledged,
            expired=totals.expired,
            returned=totals.returned,
            dead_lettered=totals.dead_lettered,
            deduplicated=totals.deduplicated,
        )

    def _came(self, messages: Sequence[Message], bytes_added: int) -> None:
        self._arrivals.extend(messages)
        self.order.enter(messages)
        self._hold(len(messages), bytes_added)

    def _went(self, messages: Sequence[Message]) -> None:
        if self.shares_bodies:
            self._counters.memory += self._counters.bodies.release(messages)
        bytes_gone = 0
        for message in messages:
            bytes_gone += size_of(message)
            message.visible_ms = GONE
            message.body, message.attributes, message.reason = (
                b"",
                b"",
                "",
            )  # stale entries hold the message, but need not hold these
        self._stale += len(messages)
        self._hold(-len(messages), -bytes_gone)

    def _hold(self, messages: int, size_bytes: int) -> None:
        counters = self._counters
        self.bytes += size_bytes
        self.usage.bytes += size_bytes
        counters.bytes += size_bytes
        counters.memory += messages * MESSAGE + size_bytes

    def _expires_ms(self, message: Message) -> int:
        """The first whole second at which its retention is over."""
        return -(-(message.entered_ms + self.config.retention_ms) // SECOND_MS) * SECOND_MS


def memory_of(name: str, tags: dict[str, str]) -> int:
    """Memory of a queue without its messages."""
    return QUEUE + text_bytes(name) + tags_memory(tags)


def tags_memory(tags: dict[str, str]) -> int:
    return len(tags) * TAG + texts_bytes(tags) + texts_bytes(tags.values())


def size_of(message: Message) -> int:
    return len(message.body) + len(message.attributes) + len(message.reason)
