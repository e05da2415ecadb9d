"""What the plain model of the machine keeps: messages and queues, each fact once."""

from __future__ import annotations

from dataclasses import dataclass, field

from lavant.broker.protocol.queue_config import DEDUPLICATION_MS, SECOND_MS, QueueConfig
from lavant.broker.protocol.queues import Delivery, Receipt, SendEntry


@dataclass
class ModelMessage:
    number: int
    entry: SendEntry
    name: str
    sent_ms: int
    entered_ms: int
    hidden_until_ms: int | None
    is_leased: bool = False
    lease: int = 0
    receive_count: int = 0
    first_received_ms: int = 0
    origin: str | None = None
    reason: str = ""
    attempts: int = 0
    place: int = 0
    """In the line of an out-of-order queue; counts up each time that it becomes visible."""

    @property
    def is_visible(self) -> bool:
        return self.hidden_until_ms is None

    @property
    def size(self) -> int:
        return len(self.entry.body) + len(self.entry.attributes) + len(self.reason)

    @property
    def state(self) -> str:
        return "visible" if self.is_visible else "in flight" if self.is_leased else "delayed"

    def delivery(self) -> Delivery:
        return Delivery(
            Receipt(self.number, self.lease),
            self.entry.body,
            self.entry.attributes,
            self.sent_ms,
            self.first_received_ms,
            self.receive_count,
            self.entry.group,
            self.name,
            self.origin,
            self.reason,
            self.attempts,
        )


@dataclass
class ModelTurn:
    """Of a group of an in-order queue that can be received from."""

    head: int
    is_returned: bool
    after: int
    place: int


@dataclass
class ModelQueue:
    name: str
    config: QueueConfig
    tags: dict[str, str]
    created_ms: int
    changed_ms: int
    messages: list[ModelMessage] = field(default_factory=list)
    """In the order of their arrival."""
    names: list[tuple[int, object, int]] = field(default_factory=list)
    """When it was sent, the name, the number."""
    turns: dict[str, ModelTurn] = field(default_factory=dict)
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ["sent", "received", "acknowledged", "expired", "returned", "dead_lettered", "deduplicated"], 0
        )
    )

    @property
    def is_in_order(self) -> bool:
        return self.config.order == "in-order"

    def find(self, number: int) -> ModelMessage | None:
        return next((message for message in self.messages if message.number == number), None)

    def in_flight(self) -> int:
        return sum(message.is_leased for message in self.messages)

    def expires_ms(self, message: ModelMessage) -> int:
        over_ms = message.entered_ms + self.config.retention_ms
        return over_ms if over_ms % SECOND_MS == 0 else over_ms - over_ms % SECOND_MS + SECOND_MS

    def events_ms(self) -> list[int]:
        """When something will happen by itself, even if nobody sees it."""
        hidden = [message.hidden_until_ms for message in self.messages if message.hidden_until_ms is not None]
        names = [sent_ms + DEDUPLICATION_MS for sent_ms, _, _ in self.names]
        return hidden + [self.expires_ms(message) for message in self.messages] + names
