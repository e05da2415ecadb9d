"""Queues: their settings, what they hold, and what is sent and received."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import field

from lavant.broker.protocol import queues as protocol
from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES
from lavant.broker.protocol.queue_config import DELAY_MS_MAX, SECOND_MS
from lavant.broker.protocol.queue_config import QueueConfig as StoredQueueConfig
from lavant.broker.protocol.queues import Receipt
from lavant.client.values.mirror import Bounds, Mirror
from lavant.core.seconds import seconds_name

_NEW = StoredQueueConfig()


class QueueConfig(Mirror[StoredQueueConfig], frozen=True):
    """The attributes of a queue, with the defaults of a new one. Times are in seconds."""

    order: Literal["out-of-order", "in-order"] = _NEW.order
    visibility_s: float = _NEW.visibility_ms / SECOND_MS
    """How long a received message is hidden from other consumers."""
    delay_s: float = _NEW.delay_ms / SECOND_MS
    """How long a sent message stays hidden first."""
    retention_s: float = _NEW.retention_ms / SECOND_MS
    """How long a message is kept."""
    wait_s: float = _NEW.wait_ms / SECOND_MS
    """How long a receive waits for a message."""
    message_bytes_max: int = _NEW.message_bytes_max
    depth_max: int = _NEW.depth_max
    """Messages in the queue; then sends are refused."""
    in_flight_max: int = _NEW.in_flight_max
    """Messages in flight; then receives are refused."""
    dead_letters: str | None = _NEW.dead_letters
    """The queue for messages that were received `receives_max` times."""
    receives_max: int | None = _NEW.receives_max
    deduplicate_by_content: bool = _NEW.deduplicate_by_content
    deduplicate_within_group: bool = _NEW.deduplicate_within_group
    labels: dict[str, str] = field(default_factory=dict)

    _bounds_ms: ClassVar[Bounds] = {
        seconds_name(each.name): (each.least, each.most)
        for each in QUEUE_ATTRIBUTES
        if each.most is not None and seconds_name(each.name) != each.name
    }


class QueueFigures(Mirror[protocol.QueueFigures], frozen=True):
    """How many messages a queue holds, and what happened to them since it was created."""

    visible: int
    in_flight: int
    delayed: int
    bytes: int
    oldest_sent_s: float | None
    """When the oldest message entered this queue, in seconds since 1970."""
    sent: int
    received: int
    acknowledged: int
    expired: int
    returned: int
    """Leases that expired."""
    dead_lettered: int
    deduplicated: int


class Described(Mirror[protocol.Described], frozen=True):
    """The settings, tags and figures of a queue."""

    config: QueueConfig
    tags: dict[str, str]
    created_s: float
    """In seconds since 1970, as `changed_s`."""
    changed_s: float
    figures: QueueFigures


class Delivery(Mirror[protocol.Delivery], frozen=True):
    """A message that was received. Its times are in seconds since 1970."""

    receipt: Receipt
    body: bytes
    attributes: bytes
    sent_s: float
    first_received_s: float
    receive_count: int
    group: str
    deduplication: str
    origin: str | None = None
    """The source queue of a dead letter."""
    reason: str = ""
    """Why the last attempt failed, as a consumer or webhook said; empty if none did, and its lease ran out."""
    attempts: int = 0
    """How often a dead letter was received in its source queue."""


class PeekedMessage(Mirror[protocol.PeekedMessage], frozen=True):
    """A message that was looked at, and not received. Its times are in seconds since 1970."""

    number: int
    state: str
    """`visible`, `in flight` or `delayed`."""
    visible_s: float
    """When it becomes visible; 0 if it is visible."""
    body: bytes
    attributes: bytes
    sent_s: float
    receive_count: int
    group: str
    origin: str | None = None
    reason: str = ""
    attempts: int = 0
    """These three as in `Delivery`."""


class MoveState(Mirror[protocol.MoveState], frozen=True):
    """The redrive of a dead-letter queue, and how far it is."""

    task: int
    source: str
    destination: str | None
    rate_per_s: int | None
    started_s: float
    """In seconds since 1970."""
    total: int
    """Messages to move when it started."""
    moved: int
    status: str
    """`running`, `completed`, `cancelled` or `failed`."""
    reason: str
    namespace: str | None = None


class SendEntry(Mirror[protocol.SendEntry], frozen=True):
    """One message of `Queue.send_many`."""

    body: bytes
    attributes: bytes = b""
    """Opaque to the server; delivered with the message."""
    delay_s: float | None = None
    """Until the message is visible; the queue's delay by default. In-order queues support only their own."""
    group: str = ""
    """In-order queues only: messages of a group are delivered in order, each after the previous one is done."""
    deduplication: str = ""
    """In-order queues only: a second message with this id within the window is a duplicate of the first."""

    _bounds_ms: ClassVar[Bounds] = {"delay_s": (0, DELAY_MS_MAX)}
