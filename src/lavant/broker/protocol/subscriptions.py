"""What a broker is asked about subscriptions and publications, and what it answers.

    command (changes something; goes into the journal)        answer
    ──────────────────────────────────────────────────        ──────────────
    Subscribe                                                 Subscribed
    Unsubscribe                                               Done
    Advertise                                                 Advertised
    Unadvertise                                               Done
    Deliver    what became of publications once matched       Done

    request that becomes a `Deliver`                          answer
    ────────────────────────────────                          ──────────────
    Publish                                                   Published

    request that a server answers by itself                   answer
    ───────────────────────────────────────                   ──────────────
    RenewSubscription                                         Subscribed

    query (changes nothing)                                   answer
    ───────────────────────                                   ──────────────
    DescribeSubscription                                      Subscribed
    ListSubscriptions                                         SubscriptionsListed
    ListAdvertisements                                        AdvertisementsListed

Like the requests for queues these are arrays in MessagePack, and the journal's format.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import Done, FanOut, Refused

NEW_QUEUE = QueueConfig()


class _Value(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Webhook(_Value, frozen=True):
    """Notifications are posted to an address, each in a request of its own."""

    url: str
    attempts_max: int = 10
    """Then a notification goes to the dead-letter queue."""
    timeout_ms: int = 10_000
    secret: str = ""
    """If given, each request carries an HMAC-SHA256 of its id, time and body under this secret."""


class EncryptedFilter(_Value, frozen=True):
    """Tests × dimensions doubles, little endian: nothing in it can be read without the client's key."""

    dimensions: int
    tests: bytes


class Subscribe(_Value, tag="subscribe", frozen=True):
    """Have what matches put into a queue. The same again, under the same name, changes nothing."""

    filter: str | EncryptedFilter
    name: str = ""
    """Within the namespace; the broker gives one if it is empty."""
    queue: str = ""
    """Where notifications go; without, into a queue of the subscription's own, of the same name."""
    namespace: str = ""
    config: QueueConfig = NEW_QUEUE
    """Of the queue, if it is created with the subscription."""
    webhook: Webhook | None = None
    lease_ms: int = 0
    """If given, the subscription is temporary: it ends when its client is not heard of for so long."""


class RenewSubscription(_Value, tag="renew-subscription", frozen=True):
    """The client of a temporary subscription is still there. Not in the journal: `lavant.broker.machine.leases`."""

    name: str
    namespace: str = ""


class Unsubscribe(_Value, tag="unsubscribe", frozen=True):
    """The subscription ends; a queue of its own goes with it, and what is in it."""

    name: str
    namespace: str = ""


class Advertise(_Value, tag="advertise", frozen=True):
    """A publisher says which publications it is going to send: all of them will match this filter."""

    filter: str
    name: str = ""
    namespace: str = ""


class Unadvertise(_Value, tag="unadvertise", frozen=True):
    name: str
    namespace: str = ""


class Publish(_Value, tag="publish", frozen=True):
    publications: list[bytes]
    """An object in JSON each: attributes, and `@id`, `@time_ms`, `@payload` (base64) or `@point` if it is encrypted."""
    key: str = ""
    """A request with the same key and the same publications within some minutes is taken for the first, and answered
    alike. With other publications it is refused."""
    namespace: str = ""


class PublishOutcome(_Value, frozen=True):
    """What a request with a key was answered."""

    namespace: str
    key: str
    fingerprint: bytes
    """Of its publications."""
    entries: list[str | Refused]


class Deliver(_Value, tag="deliver", frozen=True):
    """The broker's own doing: publications that were matched go into the queues of those who want them."""

    spread: FanOut
    keys: dict[str, list[str | Refused]] = {}
    """What requests with a key were answered, in journals of versions that had no `answered`."""
    accepted: dict[str, int] = {}
    """By lane: up to which offset the publications of its log count. What lies behind was never answered."""
    delivered: dict[str, int] = {}
    """By lane: up to which offset publications are in queues with this. Said together, it happens once."""
    answered: list[PublishOutcome] = []
    """Of the requests that had a key."""
    forgotten: list[str] = []
    """Lanes without subscriptions, of which nothing is owed."""


class DescribeSubscription(_Value, tag="describe-subscription", frozen=True):
    name: str
    namespace: str = ""


class ListSubscriptions(_Value, tag="list-subscriptions", frozen=True):
    namespace: str = ""
    prefix: str = ""
    after: str = ""
    count: int = 1000


class ListAdvertisements(_Value, tag="list-advertisements", frozen=True):
    namespace: str = ""
    after: str = ""
    count: int = 1000


Command: TypeAlias = Subscribe | Unsubscribe | Advertise | Unadvertise | Deliver
Query: TypeAlias = DescribeSubscription | ListSubscriptions | ListAdvertisements
Request: TypeAlias = Command | Publish | RenewSubscription | Query


class SubscriptionState(_Value, frozen=True):
    number: int
    """What matchers know it by; never given twice."""
    name: str
    namespace: str
    filter: str | EncryptedFilter
    queue: str
    owns_queue: bool
    webhook: Webhook | None
    created_ms: int
    lease_ms: int = 0
    """Above 0 if it is temporary."""
    expires_ms: int = 0
    """In a server's answers: when it ends unless its lease is renewed; 0 if it does not."""

    @property
    def is_temporary(self) -> bool:
        return self.lease_ms > 0


class AdvertisementState(_Value, frozen=True):
    name: str
    namespace: str
    filter: str
    created_ms: int


class Subscribed(_Value, tag="subscribed", frozen=True):
    subscription: SubscriptionState
    is_new: bool


class Advertised(_Value, tag="advertised", frozen=True):
    advertisement: AdvertisementState
    is_new: bool


class Published(_Value, tag="published", frozen=True):
    entries: list[str | Refused]
    """The id of each publication, or why it was refused."""


class SubscriptionsListed(_Value, tag="subscriptions-listed", frozen=True):
    subscriptions: list[SubscriptionState]


class AdvertisementsListed(_Value, tag="advertisements-listed", frozen=True):
    advertisements: list[AdvertisementState]


Answer: TypeAlias = Done | Refused | Subscribed | Advertised | Published | SubscriptionsListed | AdvertisementsListed
