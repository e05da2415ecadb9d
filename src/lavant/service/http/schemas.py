"""The JSON bodies of requests and answers. The OpenAPI schemas are generated from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Refused


class _In(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mistyped name is an error, not a default."""


class _Out(msgspec.Struct, frozen=True, kw_only=True):
    pass


class RefusedEntry(_Out, frozen=True):
    """A refused entry of a request; the others were accepted."""

    index: int
    code: str
    reason: str


def refused_entries(refused: Mapping[int, Refused]) -> list[RefusedEntry]:
    """Those of a batch, by their places."""
    return [RefusedEntry(index=place, code=each.code, reason=each.reason) for place, each in refused.items()]


# ── publishing ────────────────────────────────────────────────────────────────────────────────────────────────────────


class PublishAnswer(_Out, frozen=True):
    accepted: int
    ids: list[str | None]
    """In the order of the request; null where a publication was refused."""
    refused: list[RefusedEntry]


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


class QueueSettings(QueueConfig, frozen=True, array_like=False, forbid_unknown_fields=True):
    """Of the queue of a subscription; see `lavant.broker.protocol.queue_attributes`."""

    def config(self) -> QueueConfig:
        return QueueConfig(**msgspec.structs.asdict(self))


class WebhookBody(_In, frozen=True):
    url: str
    attempts_max: int = 10
    timeout_ms: int = 10_000
    secret: str = ""


class EncryptedFilterBody(_In, frozen=True):
    """Made by a client that has the key."""

    dimensions: int
    tests: bytes
    """Base64."""


class NewSubscription(_In, frozen=True):
    filter: str | EncryptedFilterBody
    name: str = ""
    queue: str = ""
    webhook: WebhookBody | None = None
    settings: QueueSettings = QueueSettings()
    lease_ms: int = 0
    """If given, the subscription is temporary: it ends if no client receives from it or renews it for so long."""


class SubscriptionUpdate(_In, frozen=True):
    filter: str | EncryptedFilterBody
    """For publications from now on."""


class WebhookView(_Out, frozen=True):
    url: str
    attempts_max: int
    timeout_ms: int
    is_signed: bool


class MessagesView(_Out, frozen=True):
    """The messages in the queue of a subscription."""

    visible: int
    in_flight: int
    delayed: int
    oldest_sent_ms: int | None


class SubscriptionView(_Out, frozen=True, omit_defaults=True):
    name: str
    filter: str | EncryptedFilterBody
    queue: str
    owns_queue: bool
    created_ms: int
    lease_ms: int = 0
    """Only for a temporary subscription."""
    expires_ms: int = 0
    """When a temporary subscription ends, unless a client receives from it or renews it."""
    webhook: WebhookView | None = None
    messages: MessagesView | None = None
    settings: QueueSettings | None = None
    """Both only if you ask for one subscription."""


class SubscribeManyAnswer(_Out, frozen=True):
    subscriptions: list[SubscriptionView | None]
    """In the order of the request; null where a subscription was refused."""
    refused: list[RefusedEntry]


class SubscriptionsPage(_Out, frozen=True):
    subscriptions: list[SubscriptionView]
    next: str | None
    """The value of `after` for the next page; null on the last page."""


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewQueue(_In, frozen=True):
    settings: QueueSettings = QueueSettings()
    """What is left out has its default."""
    tags: dict[str, str] | None = None
    """Null keeps those of a queue that exists."""


class QueueView(_Out, frozen=True):
    name: str
    settings: QueueSettings
    tags: dict[str, str]
    created_ms: int
    changed_ms: int
    messages: MessagesView
    totals: dict[str, int]
    """Since the queue was created."""


class QueuesPage(_Out, frozen=True):
    queues: list[str]
    next: str | None


class NewMessage(_In, frozen=True):
    """A message: give one of `text`, `json` and `body_base64`."""

    text: str | None = None
    json: Any = msgspec.UNSET
    body_base64: bytes | None = None
    delay_ms: int | None = None
    group: str = ""
    deduplication: str = ""


class SendBody(_In, frozen=True):
    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=1000)]


class SendAnswer(_Out, frozen=True):
    ids: list[int | None]
    """In the order of the request; null where a message was refused."""
    refused: list[RefusedEntry]


class QueuedMessage(_Out, frozen=True, omit_defaults=True):
    """A message of a queue, received or looked at."""

    id: int
    sent_ms: int
    attempt: int
    """How often it was received, this time included."""
    receipt: str = ""
    """Of a received message."""
    state: str = ""
    """Of a message that was looked at: `visible`, `in flight` or `delayed`."""
    text: str | None = None
    body_base64: bytes | None = None
    """In base64, if the body is not text."""
    group: str = ""
    origin: str | None = None
    """The source queue of a dead letter."""
    reason: str = ""
    """Why the last attempt failed, if a consumer said so."""
    attempts: int = 0
    """How often a dead letter was received in its source queue."""
    traceparent: str = ""
    """The trace context that a received message was sent with."""
    tracestate: str = ""


class QueuedMessages(_Out, frozen=True):
    messages: list[QueuedMessage]


class ReleasedMessage(_In, frozen=True):
    receipt: str
    after_ms: int = 0
    """It is visible again after so long."""
    reason: str = ""
    """Kept with the message, for people who look at dead letters."""


class SettleBody(_In, frozen=True):
    receipts: list[str] = []
    """Of messages that are done: they are deleted."""
    release: list[ReleasedMessage] = []
    """Messages to release or, with a long `after_ms`, to keep for longer."""


class SettleAnswer(_Out, frozen=True):
    acknowledged: int
    released: int
    refused: list[RefusedEntry]
    """Of both lists together: those of `release` come after `receipts`."""


class RedriveBody(_In, frozen=True):
    destination: str | None = None
    """Null moves each message back to the queue that it came from."""
    rate_per_s: int | None = None


class RedriveAnswer(_Out, frozen=True):
    task: int


# ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class ReceiveBody(_In, frozen=True):
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    visibility_ms: int | None = None


class ReceivedMessage(_Out, frozen=True, omit_defaults=True):
    receipt: str
    id: int
    attempt: int
    publication: msgspec.Raw | None = None
    """The message, if it is JSON, as publications are."""
    body: bytes | None = None
    """The message in base64, if it is not JSON."""


class ReceiveAnswer(_Out, frozen=True):
    messages: list[ReceivedMessage]


class AcknowledgeBody(_In, frozen=True):
    receipts: list[str] = []
    give_back: list[str] = []
    """Receipts to release: the messages are visible again at once."""


class AcknowledgeAnswer(_Out, frozen=True):
    acknowledged: int
    refused: list[RefusedEntry]


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class StreamMessage(_Out, frozen=True, omit_defaults=True):
    """From the server."""

    id: int
    attempt: int
    publication: msgspec.Raw | None = None
    body: bytes | None = None


class StreamReply(_In, frozen=True):
    """From the client."""

    ack: list[int] = []
    nack: list[int] = []


class StreamConfirmation(_Out, frozen=True):
    """From the server: acknowledgements that are on its disk."""

    acknowledged: list[int]
    refused: list[RefusedEntry]
    """With the id of the message as the index."""


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewJob(_In, frozen=True):
    type: str
    input: Any = ""
    """Text is taken as it is, any other value as JSON."""
    input_base64: bytes | None = None
    """In base64, instead of `input`."""
    name: str = ""
    """An idempotency key: a second submission under this name returns the first job, while that is remembered."""


class JobAnswer(_Out, frozen=True):
    job: int
    is_new: bool


class CancelAnswer(_Out, frozen=True):
    state: str
    is_new: bool
    """False if the job had ended before."""


class JobResult(_Out, frozen=True, omit_defaults=True):
    """The result of a task."""

    text: str | None = None
    body_base64: bytes | None = None
    """In base64, if the result is not text."""
    attributes: dict[str, str | int | float | bool] = {}


class JobAttempt(_Out, frozen=True, omit_defaults=True):
    queued_ms: int
    started_ms: int = 0
    ended_ms: int = 0
    worker: str = ""
    outcome: str = ""
    reason: str = ""


class JobTask(_Out, frozen=True):
    name: str
    topic: str
    state: str
    attempts: list[JobAttempt]


class JobLine(_Out, frozen=True):
    number: int
    type: str
    name: str
    state: str
    submitted_ms: int
    ended_ms: int | None


class JobPage(_Out, frozen=True):
    jobs: list[JobLine]
    next: int | None


class JobDescription(_Out, frozen=True):
    number: int
    type: str
    name: str
    state: str
    reason: str
    submitted_ms: int
    ended_ms: int | None
    tasks: list[JobTask]
    results: dict[str, JobResult]
    """Results of the tasks without successors."""


class DefinedAnswer(_Out, frozen=True):
    types: list[str]
    topics: list[str]


# ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewSchedule(_In, frozen=True):
    """Give one of `cron` and `interval_ms`, and one of `job_type` and `queue`."""

    cron: str = ""
    """Five fields, in UTC."""
    interval_ms: int = 0
    job_type: str = ""
    queue: str = ""
    input: Any = ""
    """The job's input, or the body of the message. Text is taken as it is, any other value as JSON."""


class ScheduleView(_Out, frozen=True):
    name: str
    cron: str
    interval_ms: int
    job_type: str
    queue: str
    next_ms: int
    fired: int
    last_ms: int
    last_error: str


class SchedulesPage(_Out, frozen=True):
    schedules: list[ScheduleView]
    next: str | None


# ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────────


class NewAdvertisement(_In, frozen=True):
    filter: str
    name: str = ""


class AdvertisementView(_Out, frozen=True):
    name: str
    filter: str
    created_ms: int


class AdvertisementsPage(_Out, frozen=True):
    advertisements: list[AdvertisementView]
    next: str | None
