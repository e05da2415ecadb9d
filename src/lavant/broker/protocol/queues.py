"""Queues: the requests, and the answers to them. These frozen values are also the format of the wire and the journal.

A request that fails is answered by `Refused`, and has changed nothing. In a batch, single entries may fail.
"""

from __future__ import annotations

from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, Value
from lavant.broker.protocol.queue_config import QueueConfig

# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Refused(Answer, tag="refused", frozen=True, repr_omit_defaults=True):
    """The request failed, and changed nothing."""

    code: str
    """For programs: the name of an error's class (`UnknownQueue`, `LimitExceeded`, …)."""
    reason: str
    """For people: what was wrong, the value, what to do."""
    address: str = ""
    """Where to ask instead, if the code is `SubscriptionMoved`, `NotHead` or `NotEdge`."""


class Done(Answer, tag="done", frozen=True):
    """The request succeeded, and there is nothing to say about it."""


class QueueCreated(Answer, tag="created", frozen=True):
    is_new: bool


class SentEntry(Value, tag="sent-entry", frozen=True):
    number: int
    """Identifies the message: increases over all queues of a broker, and is never reused."""


class Sent(Answer, tag="sent", frozen=True):
    entries: list[SentEntry | Refused]


class Delivery(Value, frozen=True):
    """A message that was received."""

    receipt: Receipt
    body: bytes
    attributes: bytes
    sent_ms: int
    first_received_ms: int
    receive_count: int
    group: str
    deduplication: str
    origin: str | None = None
    """The source queue of a dead letter."""
    reason: str = ""
    """Why the last attempt failed, as a consumer or webhook said; empty if none did, and its lease ran out."""
    attempts: int = 0
    """How often a dead letter was received in its source queue."""


class Received(Answer, tag="received", frozen=True):
    deliveries: list[Delivery]


class Acknowledged(Answer, tag="acked", frozen=True):
    refused: dict[int, Refused]
    """By the index in the batch; all other messages are deleted. Acknowledging a deleted message succeeds."""


class VisibilityChanged(Answer, tag="visibility-changed", frozen=True):
    refused: dict[int, Refused]


class QueueFigures(Value, frozen=True):
    visible: int
    in_flight: int
    delayed: int
    bytes: int
    oldest_sent_ms: int | None
    """When the oldest message entered this queue; for a moved message, the time of the move."""
    sent: int
    """Since the queue was created, like the other totals."""
    received: int
    acknowledged: int
    expired: int
    returned: int
    """Leases that expired."""
    dead_lettered: int
    deduplicated: int


class Described(Answer, tag="described", frozen=True):
    """The settings, tags and figures of a queue."""

    config: QueueConfig
    tags: dict[str, str]
    created_ms: int
    changed_ms: int
    figures: QueueFigures


class Listed(Answer, tag="listed", frozen=True):
    queues: list[str]


class PeekedMessage(Value, frozen=True):
    """A message that was looked at, and not received."""

    number: int
    state: str
    """`visible`, `in flight` or `delayed`."""
    visible_ms: int
    """When it becomes visible; 0 if it is visible."""
    body: bytes
    attributes: bytes
    sent_ms: int
    receive_count: int
    group: str
    origin: str | None = None
    """The source queue of a dead letter."""
    reason: str = ""
    attempts: int = 0
    """Both as in `Delivery`."""


class Peeked(Answer, tag="peeked", frozen=True):
    messages: list[PeekedMessage]


class MoveStarted(Answer, tag="move-started", frozen=True):
    task: int


class MoveState(Value, frozen=True):
    """The redrive of a dead-letter queue, and how far it is."""

    task: int
    source: str
    destination: str | None
    rate_per_s: int | None
    started_ms: int
    total: int
    """Messages to move when it started."""
    moved: int
    status: str
    """`running`, `completed`, `cancelled` or `failed`."""
    reason: str
    namespace: str | None = None
    """As in the request that started it."""


class Moved(Answer, tag="moved", frozen=True):
    state: MoveState


class Moves(Answer, tag="moves-listed", frozen=True):
    moves: list[MoveState]


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Open(CommandFor[Done], tag="open", frozen=True):
    """Start the server on these queues: leases of earlier starts are distinguished from those of this one."""

    epoch: int
    """One more than at the previous start."""
    rules: int = 0
    """The version of the behaviour from here on; see `lavant.broker.queues.compatibility`. 0 in records written before
    versions existed."""


class CreateQueue(CommandFor[QueueCreated], tag="create", frozen=True):
    """Create a queue, or confirm that it exists with these settings."""

    queue: str
    config: QueueConfig
    tags: dict[str, str] = {}


class ConfigureQueue(CommandFor[Done], tag="configure", frozen=True):
    """Replace the settings of a queue."""

    queue: str
    config: QueueConfig


class TagQueue(CommandFor[Done], tag="tag", frozen=True):
    """Replace the tags of a queue."""

    queue: str
    tags: dict[str, str]
    """All tags; others are removed."""


class DeleteQueue(CommandFor[Done], tag="delete", frozen=True):
    """Delete a queue with its messages, and end the subscriptions that deliver to it."""

    queue: str


class PurgeQueue(CommandFor[Done], tag="purge", frozen=True):
    """Delete all messages of a queue."""

    queue: str


class SendEntry(Value, frozen=True):
    """One message of a `Send`."""

    body: bytes
    attributes: bytes = b""
    """Opaque to the broker; delivered with the message."""
    delay_ms: int | None = None
    """Until the message is visible; the queue's delay by default. In-order queues support only their own."""
    group: str = ""
    """In-order queues only: messages of a group are delivered in order, each after the previous one is done."""
    deduplication: str = ""
    """In-order queues only: a second message with this id within the window is a duplicate of the first."""


class Send(CommandFor[Sent], tag="send", frozen=True):
    """Send messages to a queue."""

    queue: str
    entries: list[SendEntry]


class FanOut(CommandFor[Done], tag="spread", frozen=True):
    """Put the same bodies into many queues, which share them in memory: all of it, or nothing.

    Queue number `queues[i]` gets the bodies `indexes[ends[i - 1]:ends[i]]`, in this order. All three are arrays of
    unsigned 32-bit integers, little endian.
    """

    bodies: list[bytes]
    queues: bytes
    ends: bytes
    indexes: bytes


class Receive(CommandFor[Received], tag="receive", frozen=True):
    """Lease messages of a queue, waiting for the first if there is none (long poll)."""

    queue: str
    count: int = 1
    visibility_ms: int | None = None
    """The visibility timeout; the queue's own by default."""
    wait_ms: int | None = None
    """How long the server may wait for a message; the queue's own by default."""


class Receipt(Value, frozen=True):
    """Identifies a message and one of its leases. A consumer presents it to acknowledge the message."""

    number: int
    lease: int


class Acknowledge(CommandFor[Acknowledged], tag="ack", frozen=True):
    """Delete messages that were received and processed."""

    queue: str
    receipts: list[Receipt]
    is_patient: bool = False
    """The client does not wait for the answer: it may leave with a later commit."""


class VisibilityChange(Value, frozen=True):
    receipt: Receipt
    visibility_ms: int
    """From now on; 0 makes the message visible at once."""
    reason: str = ""
    """Why the consumer gives up this attempt; kept with the message until its next failure."""


class ChangeVisibility(CommandFor[VisibilityChanged], tag="visibility", frozen=True):
    """Change the visibility timeout of messages that are in flight."""

    queue: str
    changes: list[VisibilityChange]


class Release(CommandFor[VisibilityChanged], tag="release", frozen=True):
    """Undo the receive of messages whose consumer was gone before it saw them.

    They are visible at once, and the receive does not count towards `receives_max`.
    """

    queue: str
    receipts: list[Receipt]


class EndLongPolls(CommandFor[Done], tag="end-long-polls", frozen=True):
    """End the receives of this connection that wait at a queue; their answers are empty.

    A consumer that stops does so: a message that came later would be leased to nobody. When it has the answer, it has
    everything that was leased before.
    """

    queue: str


class StartMove(CommandFor[MoveStarted], tag="start-move", frozen=True):
    """Redrive: move the messages of a dead-letter queue back to their source queues, or to another queue."""

    source: str
    destination: str | None = None
    rate_per_s: int | None = None
    namespace: str | None = None
    """Only messages whose queue is in this namespace (empty: in none) are moved; None moves all."""


class MoveSome(CommandFor[Moved], tag="move", frozen=True):
    """Move the next messages of a redrive."""

    task: int
    count: int


class CancelMove(CommandFor[Moved], tag="cancel-move", frozen=True):
    """Cancel a redrive; messages that were moved stay where they are."""

    task: int
    namespace: str | None = None
    """Only if its source is in this namespace (empty: in none); None sets no bound."""


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DescribeQueue(QueryFor[Described], tag="describe", frozen=True):
    """Return settings, tags and figures of a queue."""

    queue: str


class ListQueues(QueryFor[Listed], tag="list", frozen=True):
    """List queues by name."""

    prefix: str = ""
    after: str = ""
    count: int = 1000
    is_outside: bool = False
    """Only queues outside all namespaces."""


class ListSources(QueryFor[Listed], tag="sources", frozen=True):
    """List the queues that have this one as their dead-letter queue."""

    queue: str


class Peek(QueryFor[Peeked], tag="peek", frozen=True):
    """Look at messages without leasing them."""

    queue: str
    count: int = 10
    after: int = 0
    """Only messages with a larger number."""


class ListMoves(QueryFor[Moves], tag="moves", frozen=True):
    """List the redrives of a source queue."""

    source: str
