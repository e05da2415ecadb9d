"""All subscriptions and advertisements of a broker as one deterministic machine.

    Subscribe ──► a number for matchers, a queue for notifications ──► changes for whoever matches
    Deliver   ──► notifications in queues

What it is depends only on the commands it has carried out, like the hub of queues that it works on. It knows nothing of
matching: whoever matches takes the `changes`, and gives back what was found as `Deliver`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeAlias

import msgspec

from lavant.broker.queues.commands import CreateQueue, DeleteQueue, Done
from lavant.broker.queues.config import NAMESPACE_END, QueueConfig
from lavant.broker.queues.hub import Queues
from lavant.broker.queues.validation import check_range
from lavant.broker.subscriptions import validation
from lavant.broker.subscriptions.commands import (
    Advertise,
    Advertised,
    AdvertisementsListed,
    AdvertisementState,
    Answer,
    Deliver,
    DescribeSubscription,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    Request,
    Subscribe,
    Subscribed,
    SubscriptionsListed,
    SubscriptionState,
    Unadvertise,
    Unsubscribe,
    Webhook,
)
from lavant.broker.subscriptions.lanes import Lanes
from lavant.broker.subscriptions.limits import DEFAULT_LIMITS, SubscriptionLimits
from lavant.broker.subscriptions.recent import RecentKeys
from lavant.core.errors import (
    DuplicateSubscription,
    InvalidValue,
    QuotaExceeded,
    UnknownAdvertisement,
    UnknownSubscription,
)
from lavant.core.ids import SUBSCRIPTION_ID_MAX

LISTED_MAX = 1000
NAME_PREFIX = "sub"
DEAD_LETTERS_SUFFIX = "-dead"

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Added(msgspec.Struct, frozen=True, gc=False):
    """For matchers: a subscription, and the number of the queue that it goes to."""

    subscription: SubscriptionState
    serial: int


class Removed(msgspec.Struct, frozen=True, gc=False):
    subscription: SubscriptionState


Change: TypeAlias = Added | Removed


class Subscriptions:
    """Who wants what."""

    def __init__(self, queues: Queues, limits: SubscriptionLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.changed = False
        """Whether the last `handle` did something that a replay must do too."""
        self.changes: list[Change] = []
        """What matchers have not been told yet; whoever tells them empties it."""
        self._queues = queues
        self._number = 0
        self._subscriptions: dict[Key, SubscriptionState] = {}
        self._advertisements: dict[Key, AdvertisementState] = {}
        self._sorted: list[Key] = []
        self._by_queue: dict[str, dict[Key, None]] = {}
        self.recent = RecentKeys()
        self.lanes = Lanes()

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[SubscriptionState]:
        return iter(self._subscriptions.values())

    def handle(self, request: Request, now_ms: int) -> Answer:
        """Carry out a command or answer a query. Raises a `LavantError` if it can't be done, and has not begun then."""
        self.changed = False
        handler = self._HANDLERS.get(type(request))
        if handler is None:
            raise InvalidValue(f"{type(request).__name__} is no request about subscriptions")
        return handler(self, request, now_ms)

    def queue_deleted(self, queue: str) -> None:
        """Subscriptions that went there end: a second queue of that name is not theirs."""
        for key in list(self._by_queue.get(queue, ())):
            self._forget(key)

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, request: Subscribe, now_ms: int) -> Answer:
        validation.check_subscribe(request)
        number = self._number + 1
        name = request.name if request.name else f"{NAME_PREFIX}-{number}"
        key = (request.namespace, name)
        existing = self._subscriptions.get(key)
        if existing is not None:
            return Subscribed(_same(existing, request), is_new=False)
        self._check_room(request.namespace, number)
        queue = in_namespace(request.namespace, request.queue if request.queue else name)
        owns_queue = self._provide_queue(queue, request, now_ms)
        state = SubscriptionState(
            number, name, request.namespace, request.filter, queue, owns_queue, request.webhook, now_ms
        )
        self._number = number
        self._remember(state)
        self.changed = True
        return Subscribed(state, is_new=True)

    def _check_room(self, namespace: str, number: int) -> None:
        if len(self._subscriptions) >= self.limits.subscriptions_max or number > SUBSCRIPTION_ID_MAX:
            raise QuotaExceeded(f"there are {len(self._subscriptions)} subscriptions, which is the limit; remove some")
        if not namespace:
            return
        start, stop = bisect_left(self._sorted, (namespace, "")), bisect_left(self._sorted, (namespace + "\0", ""))
        if stop - start >= self.limits.namespace_subscriptions_max:
            raise QuotaExceeded(
                f"there are {stop - start} subscriptions in namespace {namespace!r}, which is the limit; remove some"
            )

    def _provide_queue(self, queue: str, request: Subscribe, now_ms: int) -> bool:
        """Whether it had to be created. One that is there is taken as it is."""
        if self._queues.exists(queue):
            if not request.queue:
                raise DuplicateSubscription(
                    f"there is a queue {queue!r} already, which the subscription would have as its own; "
                    "name it as the subscription's queue, or give the subscription another name"
                )
            return False
        config = request.config
        if request.webhook is not None and config.dead_letters is None:
            config = self._with_dead_letters(queue, config, request.webhook, now_ms)
        self._queues.handle(CreateQueue(queue, config), now_ms)
        return True

    def _with_dead_letters(self, queue: str, config: QueueConfig, webhook: Webhook, now_ms: int) -> QueueConfig:
        dead_letters = queue + DEAD_LETTERS_SUFFIX
        if not self._queues.exists(dead_letters):
            self._queues.handle(CreateQueue(dead_letters, QueueConfig(order=config.order)), now_ms)
        return msgspec.structs.replace(config, dead_letters=dead_letters, receives_max=webhook.attempts_max)

    def _unsubscribe(self, request: Unsubscribe, now_ms: int) -> Answer:
        state = self._find(request.namespace, request.name)
        self._forget((state.namespace, state.name))
        # A queue that others have joined since stays theirs.
        if state.owns_queue and not self._by_queue.get(state.queue) and self._queues.exists(state.queue):
            self._queues.handle(DeleteQueue(state.queue), now_ms)
        self.changed = True
        return Done()

    def _describe(self, request: DescribeSubscription, now_ms: int) -> Answer:
        return Subscribed(self._find(request.namespace, request.name), is_new=False)

    def _list(self, request: ListSubscriptions, now_ms: int) -> Answer:
        check_range("count", request.count, 1, LISTED_MAX)
        start = bisect_right(self._sorted, (request.namespace, max(request.after, _before(request.prefix))))
        page: list[SubscriptionState] = []
        for key in self._sorted[start : start + request.count]:
            if key[0] != request.namespace or not key[1].startswith(request.prefix):
                break
            page.append(self._subscriptions[key])
        return SubscriptionsListed(page)

    def _find(self, namespace: str, name: str) -> SubscriptionState:
        state = self._subscriptions.get((namespace, name))
        if state is None:
            raise UnknownSubscription(f"there is no subscription {name!r}; list the subscriptions to see their names")
        return state

    def _remember(self, state: SubscriptionState) -> None:
        key = (state.namespace, state.name)
        self._subscriptions[key] = state
        insort(self._sorted, key)
        self._by_queue.setdefault(state.queue, {})[key] = None
        self.changes.append(Added(state, self._queues.serial(state.queue)))

    def _forget(self, key: Key) -> None:
        state = self._subscriptions.pop(key)
        del self._sorted[bisect_right(self._sorted, key) - 1]
        users = self._by_queue[state.queue]
        del users[key]
        if not users:
            del self._by_queue[state.queue]
        self.changes.append(Removed(state))

    # ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _advertise(self, request: Advertise, now_ms: int) -> Answer:
        validation.check_advertise(request)
        name = request.name if request.name else f"adv-{self._number + 1}"
        key = (request.namespace, name)
        existing = self._advertisements.get(key)
        if existing is not None and existing.filter == request.filter:
            return Advertised(existing, is_new=False)
        if existing is None and len(self._advertisements) >= self.limits.advertisements_max:
            raise QuotaExceeded(
                f"there are {len(self._advertisements)} advertisements, which is the limit; remove some"
            )
        state = AdvertisementState(name, request.namespace, request.filter, now_ms)
        self._number += 1
        self._advertisements[key] = state
        self.changed = True
        return Advertised(state, is_new=existing is None)

    def _unadvertise(self, request: Unadvertise, now_ms: int) -> Answer:
        if self._advertisements.pop((request.namespace, request.name), None) is None:
            raise UnknownAdvertisement(
                f"there is no advertisement {request.name!r}; list the advertisements to see their names"
            )
        self.changed = True
        return Done()

    def _list_advertisements(self, request: ListAdvertisements, now_ms: int) -> Answer:
        check_range("count", request.count, 1, LISTED_MAX)
        names = sorted(name for namespace, name in self._advertisements if namespace == request.namespace)
        page = [name for name in names if name > request.after][: request.count]
        return AdvertisementsListed([self._advertisements[request.namespace, name] for name in page])

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, request: Deliver, now_ms: int) -> Answer:
        self.lanes.check(request.accepted, request.delivered)
        answer = self._queues.handle(request.spread, now_ms)
        assert isinstance(answer, Done)
        if request.answered:
            self.recent.remember(request.answered, now_ms)
        if request.keys:
            self.recent.remember_unplaced(request.keys, now_ms)
        self.lanes.advance(request.accepted, request.delivered)
        self.changed = self._queues.changed or bool(
            request.answered or request.keys or request.accepted or request.delivered
        )
        return answer

    _HANDLERS: ClassVar[dict[type, Callable[[Subscriptions, Any, int], Answer]]] = {
        Subscribe: _subscribe,
        Unsubscribe: _unsubscribe,
        DescribeSubscription: _describe,
        ListSubscriptions: _list,
        Advertise: _advertise,
        Unadvertise: _unadvertise,
        ListAdvertisements: _list_advertisements,
        Deliver: _deliver,
    }

    # ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def contents(self) -> tuple[int, Iterable[SubscriptionState], Iterable[AdvertisementState]]:
        """The last number given, all subscriptions in the order of their numbers, all advertisements."""
        return self._number, self._subscriptions.values(), self._advertisements.values()

    def restore(
        self,
        number: int,
        subscriptions: Iterable[SubscriptionState],
        advertisements: Iterable[AdvertisementState],
    ) -> None:
        """Into an empty registry, whose queues are there already."""
        self._number = number
        for state in subscriptions:
            self._remember(state)
        self._advertisements = {(each.namespace, each.name): each for each in advertisements}


def in_namespace(namespace: str, queue: str) -> str:
    """The name of a queue among those of all namespaces.

    >>> in_namespace("acme", "orders"), in_namespace("", "orders")
    ('acme/orders', 'orders')
    """
    return f"{namespace}{NAMESPACE_END}{queue}" if namespace else queue


def _before(prefix: str) -> str:
    """The largest text that is smaller than every text with this prefix, as far as names go."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "\U0010ffff" if prefix else ""


def _same(existing: SubscriptionState, request: Subscribe) -> SubscriptionState:
    """The one that is there, if it is what is asked for."""
    queue = in_namespace(existing.namespace, request.queue) if request.queue else existing.queue
    # What is encrypted differs each time, also if it says the same.
    is_encrypted = isinstance(existing.filter, EncryptedFilter) and isinstance(request.filter, EncryptedFilter)
    if (is_encrypted or existing.filter == request.filter) and (existing.queue, existing.webhook) == (
        queue,
        request.webhook,
    ):
        return existing
    raise DuplicateSubscription(
        f"subscription {existing.name!r} exists already with another filter, queue or webhook; "
        "unsubscribe first, or choose another name"
    )
