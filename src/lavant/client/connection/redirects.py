"""Redirects: subscriptions and queues at other brokers, where to publish, and which broker a receipt is of.

    Receive, Send, Subscribe, …     go to the latest broker
    Acknowledge, ChangeVisibility   go to the broker that delivered the message
    Publish                         goes to the head that an edge names

Messages at a new broker have larger numbers than any at the old one, so the first number that comes from there divides
the receipts.

A client that cannot connect to the broker of the right role returns to the first one, which then serves it. A request
that may have arrived at a broker is repeated only there, since no other one knows its idempotency key.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.federation import MoveSubscription
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    ChangeVisibility,
    Received,
    Refused,
    Release,
    VisibilityChanged,
)
from lavant.broker.protocol.subscriptions import (
    Advertise,
    DescribeSubscription,
    Publish,
    RenewSubscription,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.core.addresses import Address
from lavant.core.errors import NotEdge, NotHead, NotInFlight, UnknownQueue, UnknownSubscription

FOLLOWED_MAX = 20
"""Redirects of one request."""
UNANSWERED_MAX = 10_000
"""Keys of requests whose outcome is unknown."""
PAUSE_S = 0.05
"""Before a request goes to a broker that it was at already: the subscription is between both."""

_BY_NAME = (Subscribe, UpdateSubscription, Unsubscribe, RenewSubscription, DescribeSubscription, MoveSubscription)
_BY_ROLE = (NotHead.__name__, NotEdge.__name__)
_MISSING = (UnknownQueue.__name__, UnknownSubscription.__name__)
_SETTLING = (Acknowledge, ChangeVisibility, Release)


class _Place:
    """A broker that has a queue, or to which publishers belong."""

    def __init__(self, address: Address, *, first: int | None = None, is_optional: bool = False) -> None:
        self.address = address
        self.first = first
        """The smallest message number that came from there."""
        self.is_optional = is_optional
        """Another broker may do it as well, and this one has not answered yet, or takes publications only."""


class RequestPart(NamedTuple):
    """A request, or the part of it that goes to one broker; None is the one that the client connected to."""

    address: Address | None
    request: Request
    places: Sequence[int] = ()
    """Of its entries in the whole request."""
    is_optional: bool = False
    """If that broker cannot be connected to, the first one does it."""


class Redirects:
    """Shared by all connections of a client."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[_Place]] = {}
        self._unanswered: dict[str, Address] = {}
        """By idempotency key: where it may have arrived."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._places or self._unanswered)

    def knows(self, request: Request) -> bool:
        """Whether a request is about something that is elsewhere."""
        return _key_of(request) in self._places or (isinstance(request, Publish) and request.key in self._unanswered)

    def learn(self, request: Request, refused: Refused) -> None:
        """A broker says that what a request is about is elsewhere."""
        address, key, is_by_role = Address.parse(refused.address), _key_of(request), refused.code in _BY_ROLE
        with self._lock:
            places = self._places.setdefault(key, [])
            if not places or places[-1].address != address:
                places.append(_Place(address, is_optional=is_by_role))

    def goes_on(self, request: Request, part: RequestPart, refused: Refused) -> bool:
        """Whether a request that was refused should be tried again: at another broker, or at the first one, if it is
        not where the redirects lead."""
        if refused.address:
            self.learn(request, refused)
            return True
        if part.address is None or refused.code not in _MISSING:
            return False
        self.forget(request)
        return True

    def forget(self, request: Request) -> None:
        """The first broker is asked again."""
        with self._lock:
            self._places.pop(_key_of(request), None)

    def unanswered(self, part: RequestPart) -> None:
        """A request was sent, and no answer came: it may have been carried out there."""
        with self._lock:
            if isinstance(part.request, Publish) and part.request.key and part.address is not None:
                while len(self._unanswered) >= UNANSWERED_MAX:
                    del self._unanswered[next(iter(self._unanswered))]
                self._unanswered[part.request.key] = part.address

    def answered(self, part: RequestPart, answer: Answer) -> None:
        """An answer came from a broker."""
        request, address = part.request, part.address
        with self._lock:
            if isinstance(answer, Received) and answer.deliveries:
                for place in self._places.get(_key_of(request), ()):
                    if place.address == address and place.first is None:
                        place.first = min(each.receipt.number for each in answer.deliveries)
            elif isinstance(answer, Subscribed) and address is not None:
                for key in (("subscription", answer.subscription.name), ("queue", answer.subscription.queue)):
                    places = self._places.setdefault(key, [])
                    if not places:
                        places.append(_Place(address, first=0))
                    places[-1].is_optional = False
            elif isinstance(request, Publish):
                self._unanswered.pop(request.key, None)

    def parts(self, request: Request) -> list[RequestPart]:
        places = self._places.get(_key_of(request), [])
        if isinstance(request, Publish) and request.key in self._unanswered:
            return [RequestPart(self._unanswered[request.key], request)]
        if not isinstance(request, _SETTLING):
            latest = places[-1] if places else None
            return [
                RequestPart(latest.address, request, (), latest.is_optional) if latest else RequestPart(None, request)
            ]
        entries = _entries(request)
        by_address: dict[Address | None, list[int]] = {}
        for index, entry in enumerate(entries):
            number = entry.receipt.number if isinstance(request, ChangeVisibility) else entry.number
            by_address.setdefault(_owner(places, number), []).append(index)
        return [
            RequestPart(address, _with(request, [entries[index] for index in indexes]), indexes)
            for address, indexes in by_address.items()
        ]


def settled(part: RequestPart, answer: Answer) -> Answer:
    """The answer to a part that settles messages: if even the queue is gone there, their leases have run out."""
    if not part.places or not isinstance(answer, Refused) or not answer.address:
        return answer
    reason = f"the lease has run out, and the message has followed its subscription to {answer.address}"
    gone = {index: Refused(NotInFlight.__name__, reason) for index in range(len(part.places))}
    return Acknowledged(gone) if isinstance(part.request, Acknowledge) else VisibilityChanged(gone)


def merged(parts: Sequence[tuple[RequestPart, Answer]]) -> Answer:
    """One answer for all parts of a request."""
    if len(parts) == 1:
        return parts[0][1]
    refused: dict[int, Refused] = {}
    for part, answer in parts:
        if isinstance(answer, Refused):
            return answer
        found: dict[int, Refused] = answer.refused  # type: ignore[attr-defined]
        refused.update({part.places[index]: each for index, each in found.items()})
    return replace(parts[0][1], refused=refused)


def _key_of(request: Any) -> tuple[str, str]:
    if isinstance(request, _BY_NAME):
        return "subscription", request.name
    if isinstance(request, Publish):
        return "publications", ""
    if isinstance(request, Advertise | Unadvertise):
        return "advertisement", request.name
    return "queue", getattr(request, "queue", "")


def _owner(places: list[_Place], number: int) -> Address | None:
    for place in reversed(places):
        if place.first is not None and number >= place.first:
            return place.address
    return None


def _entries(request: Any) -> list[Any]:
    found: list[Any] = request.changes if isinstance(request, ChangeVisibility) else request.receipts
    return found


def _with(request: Any, entries: list[Any]) -> Any:
    if isinstance(request, ChangeVisibility):
        return replace(request, changes=entries)
    return replace(request, receipts=entries)
