"""Subscriptions, advertisements and publications: the requests, and the answers to them.

Like the requests for queues, these values are also the format of the wire and the journal.
"""

from __future__ import annotations

from typing import TypeAlias

from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, Value
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Done, FanOut, Refused

NEW_QUEUE = QueueConfig()


class Webhook(Value, frozen=True):
    """Delivers each notification in an HTTP request of its own."""

    url: str
    attempts_max: int = 10
    """After that, a notification goes to the dead-letter queue."""
    timeout_ms: int = 10_000
    secret: str = ""
    """If given, each request carries an HMAC-SHA256 of its id, time and body under this secret."""


class EncryptedFilter(Value, frozen=True):
    """Tests × dimensions doubles, little endian, unreadable without the client's key."""

    dimensions: int
    tests: bytes


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SubscriptionState(Value, frozen=True):
    """A subscription as the server holds it."""

    number: int
    """Identifies it and its filter for matchers; never reused."""
    name: str
    namespace: str
    filter: str | EncryptedFilter
    queue: str
    owns_queue: bool
    webhook: Webhook | None
    created_ms: int
    lease_ms: int = 0
    """Positive if it is temporary."""
    expires_ms: int = 0
    """In answers: when it ends unless its lease is renewed; 0 if it is not temporary."""

    @property
    def is_temporary(self) -> bool:
        return self.lease_ms > 0

    @property
    def is_route(self) -> bool:
        """Whether it stands for a route of a neighbouring broker, which has no name."""
        return not self.name


class AdvertisementState(Value, frozen=True):
    """An advertisement as the server holds it."""

    name: str
    namespace: str
    filter: str
    created_ms: int


class Subscribed(Answer, tag="subscribed", frozen=True):
    subscription: SubscriptionState
    is_new: bool


class Advertised(Answer, tag="advertised", frozen=True):
    advertisement: AdvertisementState
    is_new: bool


class Published(Answer, tag="published", frozen=True):
    entries: list[str | Refused]
    """The id of each publication, or why it was refused."""


class SubscriptionsListed(Answer, tag="subscriptions-listed", frozen=True):
    subscriptions: list[SubscriptionState]


class AdvertisementsListed(Answer, tag="advertisements-listed", frozen=True):
    advertisements: list[AdvertisementState]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Subscribe(CommandFor[Subscribed], tag="subscribe", frozen=True):
    """Deliver matching publications into a queue. Repeating the request under the same name changes nothing."""

    filter: str | EncryptedFilter
    name: str = ""
    """Unique in the namespace; the broker generates one if it is empty."""
    queue: str = ""
    """The queue for notifications; if empty, the subscription owns a queue of the same name."""
    namespace: str = ""
    config: QueueConfig = NEW_QUEUE
    """Settings of the queue, if the subscription creates it."""
    webhook: Webhook | None = None
    lease_ms: int = 0
    """If positive, the subscription is temporary: it ends when its client is silent for that long."""


class RenewSubscription(CommandFor[Subscribed], tag="renew-subscription", frozen=True):
    """Renew the lease of a temporary subscription.

    The journal does not record it: `lavant.broker.machine.leases`.
    """

    name: str
    namespace: str = ""


class UpdateSubscription(CommandFor[Subscribed], tag="update-subscription", frozen=True):
    """Change the filter of a subscription. Its queue stays, with everything that waits there."""

    name: str
    filter: str | EncryptedFilter
    namespace: str = ""
    number: int = 0
    """If given, the subscription is changed only if it still has this number; each update gives it another one."""


class Unsubscribe(CommandFor[Done], tag="unsubscribe", frozen=True):
    """End a subscription, and delete the queue that it owns."""

    name: str
    namespace: str = ""


SubscriptionRequest: TypeAlias = Subscribe | UpdateSubscription | Unsubscribe
"""Changes what is matched."""


class Advertise(CommandFor[Advertised], tag="advertise", frozen=True):
    """Announce future publications: all of them will match this filter."""

    filter: str
    name: str = ""
    namespace: str = ""


class Unadvertise(CommandFor[Done], tag="unadvertise", frozen=True):
    """Withdraw an advertisement."""

    name: str
    namespace: str = ""


class Publish(CommandFor[Published], tag="publish", frozen=True):
    """Match publications against all subscriptions, and deliver them into queues."""

    publications: list[bytes]
    """An object in JSON each: attributes, and `@id`, `@time_ms`, `@payload` (base64) or `@point` if it is encrypted."""
    key: str = ""
    """Idempotency key: a repetition with the same publications within some minutes gets the first answer again; with
    other publications it is refused."""
    namespace: str = ""


class PublishOutcome(Value, frozen=True):
    """The answer to a publish request with an idempotency key."""

    namespace: str
    key: str
    fingerprint: bytes
    """Of the publications."""
    entries: list[str | Refused]


class RoutedPublications(Value, frozen=True):
    """How the bodies of a fan-out came here and go on to neighbouring brokers; numbers are little endian, one a body.

    A broker without neighbours records none of this. The columns of publications that were published here are empty.
    """

    namespace: str
    points: list[bytes] = []
    """Vectors of encrypted publications, in doubles."""
    sources: list[str] = []
    """The links over which some of them came."""
    source_of: bytes = b""
    """8 bits: 0 if it was published here, otherwise 1 + the index in `sources`."""
    numbers: bytes = b""
    """64 bits: its number on the link it came from."""
    origins: list[str] = []
    """Identities of the brokers where they were published."""
    origin_of: bytes = b""
    """16 bits: 0 if it was published here, otherwise 1 + the index in `origins`."""
    origin_numbers: bytes = b""
    """64 bits: its number at its origin."""
    hops: bytes = b""
    """8 bits: the number of links it has crossed."""


class Deliver(CommandFor[Done], tag="deliver", frozen=True):
    """Put matched publications into the queues of their subscriptions."""

    fan_out: FanOut
    keys: dict[str, list[str | Refused]] = {}
    """Replaced by `answered`; in journals of older versions."""
    accepted: dict[str, int] = {}
    """By log: the end offset of the accepted publications. Later ones were never answered."""
    delivered: dict[str, int] = {}
    """By log: the end offset of the publications that are in queues with this record, so each is delivered once."""
    answered: list[PublishOutcome] = []
    """The requests that had an idempotency key."""
    forgotten: list[str] = []
    """Logs without subscriptions and without lag."""
    routed: RoutedPublications | None = None
    """If the broker has neighbours: how these publications came and go on."""


class DescribeSubscription(QueryFor[Subscribed], tag="describe-subscription", frozen=True):
    """Return a subscription."""

    name: str
    namespace: str = ""


class ListSubscriptions(QueryFor[SubscriptionsListed], tag="list-subscriptions", frozen=True):
    """List subscriptions by name."""

    namespace: str = ""
    prefix: str = ""
    after: str = ""
    count: int = 1000


class ListAdvertisements(QueryFor[AdvertisementsListed], tag="list-advertisements", frozen=True):
    """List advertisements by name."""

    namespace: str = ""
    after: str = ""
    count: int = 1000
