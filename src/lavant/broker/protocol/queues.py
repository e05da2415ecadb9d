"""What a hub of queues is asked, and what it answers: frozen values that are also the wire's and the journal's format.

Every value is an array in MessagePack, its kind first, so a request that changes something goes into the journal as the
bytes in which it came.

    command (changes something; goes into the journal)        answer
    ──────────────────────────────────────────────────        ───────────────
    Open                                                      Done
    CreateQueue                                               Created
    ConfigureQueue, TagQueue, DeleteQueue, PurgeQueue         Done
    Send                                                      Sent
    Spread                                                    Done
    Receive                                                   Received
    Acknowledge                                               Acknowledged
    ChangeVisibility                                          VisibilityChanged
    Release                                                   VisibilityChanged
    StartMove                                                 MoveStarted
    MoveSome                                                  Moved
    CancelMove                                                Moved

    query (changes nothing)                                   answer
    ───────────────────────                                   ───────────────
    DescribeQueue                                             Described
    ListQueues, ListSources                                   Listed
    Peek                                                      Peeked
    ListMoves                                                 Moves

Whatever fails is answered by `Refused`, and has changed nothing. A batch may fail for some of its entries only.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.broker.protocol.queue_config import QueueConfig


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """No cycles can be made of frozen values, so the garbage collector need not look at them."""


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Open(_Value, tag="open", frozen=True):
    """A server starts on this hub: leases given before it are told apart from leases given after it."""

    epoch: int
    """One more than that of the start before."""
    rules: int = 0
    """The version of the behaviour from here on; see `lavant.broker.queues.compatibility`. Records of before it was
    said: 0."""


class CreateQueue(_Value, tag="create", frozen=True):
    queue: str
    config: QueueConfig
    tags: dict[str, str] = {}


class ConfigureQueue(_Value, tag="configure", frozen=True):
    queue: str
    config: QueueConfig


class TagQueue(_Value, tag="tag", frozen=True):
    queue: str
    tags: dict[str, str]
    """All tags that it has from now on."""


class DeleteQueue(_Value, tag="delete", frozen=True):
    queue: str


class PurgeQueue(_Value, tag="purge", frozen=True):
    queue: str


class SendEntry(_Value, frozen=True):
    """One message to be sent."""

    body: bytes
    attributes: bytes = b""
    """Opaque to the hub; given out with the message."""
    delay_ms: int | None = None
    """Until it can be received; the queue's own by default. In-order queues have only their own."""
    group: str = ""
    """In-order queues only: messages of one group start in order, one after the other is done."""
    deduplication: str = ""
    """In-order queues only: a second message of this name within the window is taken for the first."""


class Send(_Value, tag="send", frozen=True):
    queue: str
    entries: list[SendEntry]


class FanOut(_Value, tag="spread", frozen=True):
    """The same bodies into many queues, which hold them only once: all of it, or nothing.

    Queue number `queues[i]` gets the bodies `places[ends[i - 1]:ends[i]]`, in this order. All three are arrays of
    unsigned 32-bit integers, little endian.
    """

    bodies: list[bytes]
    queues: bytes
    ends: bytes
    places: bytes


class Receive(_Value, tag="receive", frozen=True):
    queue: str
    count: int = 1
    visibility_ms: int | None = None
    """How long the messages are hidden from others; the queue's own by default."""
    wait_ms: int | None = None
    """How long the server may wait for a message; the queue's own by default. The hub itself never waits."""


class Receipt(_Value, frozen=True):
    """What a consumer shows to acknowledge a message: which one, and which of its leases."""

    number: int
    lease: int


class Acknowledge(_Value, tag="ack", frozen=True):
    queue: str
    receipts: list[Receipt]
    is_patient: bool = False
    """Nobody waits for the answer, which is sent when something else was committed anyway, or a little later."""


class VisibilityChange(_Value, frozen=True):
    receipt: Receipt
    visibility_ms: int
    """From now on; 0 makes the message visible at once."""


class ChangeVisibility(_Value, tag="visibility", frozen=True):
    queue: str
    changes: list[VisibilityChange]


class Release(_Value, tag="release", frozen=True):
    """Messages that were leased and never seen, since their consumer was gone, are as if they had not been received.

    They are visible at once, and the receive does not count towards `receives_max`.
    """

    queue: str
    receipts: list[Receipt]


class StartMove(_Value, tag="start-move", frozen=True):
    """Redrive: move the messages of a dead-letter queue back to where they came from, or elsewhere."""

    source: str
    destination: str | None = None
    rate_per_s: int | None = None
    namespace: str | None = None
    """Messages go back only to queues of this namespace (empty: of none), and all others stay; None sets no bound."""


class MoveSome(_Value, tag="move", frozen=True):
    """The server's own doing: a step of a move."""

    task: int
    count: int


class CancelMove(_Value, tag="cancel-move", frozen=True):
    task: int
    namespace: str | None = None
    """Only if its source is a queue of this namespace (empty: of none); None sets no bound."""


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class DescribeQueue(_Value, tag="describe", frozen=True):
    queue: str


class ListQueues(_Value, tag="list", frozen=True):
    prefix: str = ""
    after: str = ""
    count: int = 1000
    is_outside: bool = False
    """Only queues that are in no namespace."""


class ListSources(_Value, tag="sources", frozen=True):
    """Which queues have this one as their dead-letter queue."""

    queue: str


class Peek(_Value, tag="peek", frozen=True):
    """Look at messages without leasing them."""

    queue: str
    count: int = 10
    after: int = 0
    """Only messages with a larger number."""


class ListMoves(_Value, tag="moves", frozen=True):
    source: str


Command: TypeAlias = (
    Open
    | CreateQueue
    | ConfigureQueue
    | TagQueue
    | DeleteQueue
    | PurgeQueue
    | Send
    | FanOut
    | Receive
    | Acknowledge
    | ChangeVisibility
    | Release
    | StartMove
    | MoveSome
    | CancelMove
)
Query: TypeAlias = DescribeQueue | ListQueues | ListSources | Peek | ListMoves
Request: TypeAlias = Command | Query


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Refused(_Value, tag="refused", frozen=True):
    code: str
    """For programs: the name of an error's class (`UnknownQueue`, `LimitExceeded`, …)."""
    reason: str
    """For people: what was wrong, the value, what to do."""


class Done(_Value, tag="done", frozen=True):
    pass


class QueueCreated(_Value, tag="created", frozen=True):
    is_new: bool


class SentEntry(_Value, tag="sent-entry", frozen=True):
    number: int
    """Counts up over all queues of a hub, and is never given twice: it identifies the message."""


class Sent(_Value, tag="sent", frozen=True):
    entries: list[SentEntry | Refused]


class Delivery(_Value, frozen=True):
    receipt: Receipt
    body: bytes
    attributes: bytes
    sent_ms: int
    first_received_ms: int
    receive_count: int
    group: str
    deduplication: str
    origin: str | None = None
    """The queue whose dead letter it is."""


class Received(_Value, tag="received", frozen=True):
    deliveries: list[Delivery]


class Acknowledged(_Value, tag="acked", frozen=True):
    refused: dict[int, Refused]
    """By the place in the batch; all others are gone for good. One that was gone already counts as acknowledged."""


class VisibilityChanged(_Value, tag="visibility-changed", frozen=True):
    refused: dict[int, Refused]


class QueueFigures(_Value, frozen=True):
    visible: int
    in_flight: int
    delayed: int
    bytes: int
    oldest_sent_ms: int | None
    """When the oldest message came into this queue; a moved one came when it was moved."""
    sent: int
    """Since the queue was created; so are the other totals."""
    received: int
    acknowledged: int
    expired: int
    returned: int
    """Leases that ran out."""
    dead_lettered: int
    deduplicated: int


class Described(_Value, tag="described", frozen=True):
    config: QueueConfig
    tags: dict[str, str]
    created_ms: int
    changed_ms: int
    figures: QueueFigures


class Listed(_Value, tag="listed", frozen=True):
    queues: list[str]


class PeekedMessage(_Value, frozen=True):
    number: int
    state: str
    """`visible`, `in flight` or `delayed`."""
    visible_ms: int
    """When it is visible (again); 0 if it is."""
    body: bytes
    attributes: bytes
    sent_ms: int
    receive_count: int
    group: str
    origin: str | None = None
    """The queue whose dead letter it is."""


class Peeked(_Value, tag="peeked", frozen=True):
    messages: list[PeekedMessage]


class MoveStarted(_Value, tag="move-started", frozen=True):
    task: int


class MoveState(_Value, frozen=True):
    task: int
    source: str
    destination: str | None
    rate_per_s: int | None
    started_ms: int
    total: int
    """How many messages there were to move when it started."""
    moved: int
    status: str
    """`running`, `completed`, `cancelled` or `failed`."""
    reason: str
    namespace: str | None = None
    """As in the request that started it."""


class Moved(_Value, tag="moved", frozen=True):
    state: MoveState


class Moves(_Value, tag="moves-listed", frozen=True):
    moves: list[MoveState]


Answer: TypeAlias = (
    Refused
    | Done
    | QueueCreated
    | Sent
    | Received
    | Acknowledged
    | VisibilityChanged
    | Described
    | Listed
    | Peeked
    | MoveStarted
    | Moved
    | Moves
)
