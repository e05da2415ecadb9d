"""The state machine of all subscriptions and advertisements of a broker.

    Subscribe ──► a number for matchers, a queue for notifications ──► changes for matchers
    Deliver   ──► notifications in queues

Like the queues it works on, its state depends only on the commands it has handled. It does not match: matchers read
`changes` and return match results as `Deliver`. `Queues.changed` says whether a command did something that a replay
must repeat.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec

from lavant.broker.filters import Filter
from lavant.broker.filters.limits import NO_LIMITS
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.queue_config import NAME_CHARACTERS_MAX, QueueConfig
from lavant.broker.protocol.queues import CreateQueue, DeleteQueue, Done
from lavant.broker.protocol.registry import COMMANDS, QUERIES, SUBSCRIPTIONS, handlers_of
from lavant.broker.protocol.subscriptions import (
    Advertise,
    Advertised,
    AdvertisementsListed,
    AdvertisementState,
    Deliver,
    DescribeSubscription,
    EncryptedFilter,
    ListAdvertisements,
    ListSubscriptions,
    Subscribe,
    Subscribed,
    SubscriptionRequest,
    SubscriptionsListed,
    SubscriptionState,
    Unadvertise,
    Unsubscribe,
    UpdateSubscription,
)
from lavant.broker.queues.accounting.quotas import check_count
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.operations.transfer import Relocation
from lavant.broker.queues.plan import Plan, unchanged
from lavant.broker.queues.queue import memory_of as queue_memory
from lavant.broker.subscriptions import validation
from lavant.broker.subscriptions.idempotency import IdempotencyKeys
from lavant.broker.subscriptions.limits import DEFAULT_LIMITS, SubscriptionLimits
from lavant.broker.subscriptions.log_offsets import LogOffsets
from lavant.broker.subscriptions.memory import memory_of, memory_of_advertisement, memory_of_key
from lavant.core.errors import (
    DuplicateSubscription,
    InvalidValue,
    QuotaExceeded,
    SubscriptionChanged,
    UnknownAdvertisement,
    UnknownSubscription,
)
from lavant.core.ids import SUBSCRIPTION_ID_MAX
from lavant.core.publications.attributes import AttributeValue

NAME_PREFIX = "sub"
DEAD_LETTERS_SUFFIX = "-dead"

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class Added(msgspec.Struct, frozen=True, gc=False):
    """For matchers: a subscription, and the number of its queue or link."""

    subscription: SubscriptionState
    serial: int
    replaces: int = 0
    """The number that the same subscription had before its filter was changed."""


class Removed(msgspec.Struct, frozen=True, gc=False):
    subscription: SubscriptionState


Change: TypeAlias = Added | Removed


class Subscriptions:
    """All subscriptions and advertisements."""

    def __init__(self, queues: Queues, limits: SubscriptionLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.changes: list[Change] = []
        """Changes not yet passed to matchers; the reader empties it."""
        self.on_changed: Callable[[SubscriptionState | AdvertisementState, bool], None] = lambda state, is_added: None
        """Called with each subscription and advertisement of clients that is added or removed."""
        self._queues = queues
        self._counters = queues.counters
        self._number = 0
        self._subscriptions: dict[Key, SubscriptionState] = {}
        self._advertisements: dict[Key, AdvertisementState] = {}
        self._advertised: dict[str, list[Filter]] = {}
        """Parsed filters of the advertisements, by namespace; empty after a change."""
        self.moved: dict[Key, Relocation] = {}
        """Subscriptions that are at another broker now."""
        self._sorted: list[Key] = []
        self._by_queue: dict[str, dict[Key, None]] = {}
        self.recent = IdempotencyKeys(queues.counters)
        queues.sweeps.add(self.recent.forget, self.recent.__len__)
        self.log_offsets = LogOffsets(queues.counters)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[SubscriptionState]:
        return iter(self._subscriptions.values())

    def __contains__(self, state: SubscriptionState) -> bool:
        """Whether this very subscription exists, not another one of the same name."""
        found = self._subscriptions.get((state.namespace, state.name))
        return found is not None and found.number == state.number

    def has(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._subscriptions

    def has_advertisement(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._advertisements

    def count(self, namespace: str) -> int:
        """Number of subscriptions in a namespace."""
        return bisect_left(self._sorted, (namespace + "\0", "")) - bisect_left(self._sorted, (namespace, ""))

    def plan(self, request: Request) -> Plan:
        """Check a command and return its plan, to be applied before anything else happens."""
        planner = self._PLANNERS.get(type(request))
        if planner is None:
            raise InvalidValue(f"{type(request).__name__} is not a request about subscriptions")
        return planner(self, request)

    def answer(self, request: Any) -> Answer:
        """Answer a query, which changes nothing."""
        return self._ANSWERS[type(request)](self, request)

    def find(self, namespace: str, name: str) -> SubscriptionState:
        """Raises if there is none of that name."""
        state = self._subscriptions.get((namespace, name))
        if state is None:
            self._check_moved((namespace, name))
            shown = name[:NAME_CHARACTERS_MAX]
            raise UnknownSubscription(
                f"there is no subscription {shown!r}; `lavant subscriptions ls` lists the subscriptions"
            )
        return state

    def updated_by(self, request: SubscriptionRequest) -> SubscriptionState | None:
        """The subscription whose filter a request changes, if there is one."""
        is_update = isinstance(request, UpdateSubscription)
        return self._subscriptions.get((request.namespace, request.name)) if is_update else None

    def _check_moved(self, key: Key) -> None:
        """Raise if it is at another broker."""
        relocation = self.moved.get(key)
        if relocation is not None and relocation.until_ms > self._queues.now_ms:
            raise relocation.moved()

    def forget(self) -> None:
        """Forget expired idempotency keys."""
        self.recent.forget(self._queues.now_ms)

    def queue_deleted(self, queue: str) -> None:
        """End the subscriptions of a deleted queue; a new queue of that name is not theirs."""
        for key in list(self._by_queue.get(queue, ())):
            self._forget(key)

    # ── subscriptions of neighbouring brokers ─────────────────────────────────────────────────────────────────────────

    def numbers(self, count: int) -> list[int]:
        """The next numbers for matchers; raises if there are not so many."""
        if self._number + count > SUBSCRIPTION_ID_MAX:
            raise QuotaExceeded(f"{self._number} numbers of subscriptions are used up, and {count} more are needed")
        return list(range(self._number + 1, self._number + count + 1))

    def take_numbers(self, numbers: list[int]) -> None:
        """Numbers that are used from now on."""
        self._number += len(numbers)

    def route_added(self, state: SubscriptionState, serial: int) -> None:
        """A neighbour subscribes; its link has this serial."""
        self.changes.append(Added(state, serial))

    def route_removed(self, state: SubscriptionState) -> None:
        self.changes.append(Removed(state))

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, request: Subscribe) -> Plan:
        self._check_moved((request.namespace, request.name))
        return self.plan_subscribe(request)

    def plan_subscribe(self, request: Subscribe, dead_letters: QueueConfig | None = None) -> Plan:
        """A subscription; if its dead-letter queue is missing, it is created with these settings, if any."""
        if not self._queues.is_replay:
            validation.check_subscribe(request)
        number = self._number + 1
        name = request.name if request.name else f"{NAME_PREFIX}-{number}"
        existing = self._subscriptions.get((request.namespace, name))
        if existing is not None:
            return unchanged(Subscribed(_same(existing, request), is_new=False))
        self._check_room(request.namespace, number)
        queue = in_namespace(request.namespace, request.queue if request.queue else name)
        creates = self._queues_for(queue, request)
        letters = request.config.dead_letters
        if dead_letters is not None and letters is not None and not self._queues.exists(letters):
            creates.insert(0, CreateQueue(letters, dead_letters))
        create_queues = self._queues.plan_queues(creates)
        state = SubscriptionState(
            number,
            name,
            request.namespace,
            request.filter,
            queue,
            bool(creates),
            request.webhook,
            self._queues.now_ms,
            request.lease_ms,
        )
        self._queues.check_memory(memory_of(state) + sum(queue_memory(each.queue, each.tags) for each in creates))

        def apply() -> Answer:
            create_queues()
            self._number = number
            self._remember(state)
            self._queues.changed = True
            return Subscribed(state, is_new=True)

        return apply

    def _check_room(self, namespace: str, number: int) -> None:
        if len(self._subscriptions) >= self.limits.subscriptions_max or number > SUBSCRIPTION_ID_MAX:
            raise QuotaExceeded(f"there are {len(self._subscriptions)} subscriptions, which is the limit; remove some")
        if not self._queues.is_replay:
            allowed = self._queues.usages.quotas.of(namespace).subscriptions_max
            check_count("subscriptions", namespace, self.count(namespace) + 1, allowed)

    def _queues_for(self, queue: str, request: Subscribe) -> list[CreateQueue]:
        """Queues that must be created. An existing one is used as it is."""
        if self._queues.exists(queue):
            if not request.queue:
                raise DuplicateSubscription(
                    f"queue {queue!r} exists already, but the subscription needs it as its own; name it as the "
                    "subscription's queue, or give the subscription another name"
                )
            if not self._queues.is_replay:
                self._queues.transfers.check_shared(queue, self._queues.now_ms)
            return []
        config = request.config
        if request.webhook is None or config.dead_letters is not None:
            return [CreateQueue(queue, config)]
        dead_letters = queue + DEAD_LETTERS_SUFFIX
        config = msgspec.structs.replace(config, dead_letters=dead_letters, receives_max=request.webhook.attempts_max)
        if self._queues.exists(dead_letters):
            return [CreateQueue(queue, config)]
        return [CreateQueue(dead_letters, QueueConfig(order=config.order)), CreateQueue(queue, config)]

    def _update_subscription(self, request: UpdateSubscription) -> Plan:
        state = self.find(request.namespace, request.name)
        if request.number not in (0, state.number):
            raise SubscriptionChanged(
                f"subscription {state.name!r} was changed: its number is {state.number}, not {request.number}; "
                "read it again"
            )
        relocation = self._queues.transfers.relocations.get(state.queue)
        if relocation is not None:
            raise relocation.moving()
        if request.filter == state.filter:
            return unchanged(Subscribed(state, is_new=False))
        numbers = self.numbers(1)
        updated = msgspec.structs.replace(state, number=numbers[0], filter=request.filter)
        self._queues.check_memory(memory_of(updated) - memory_of(state))

        def apply() -> Answer:
            self.take_numbers(numbers)
            self._replace(state, updated)
            self._queues.changed = True
            return Subscribed(updated, is_new=False)

        return apply

    def _unsubscribe(self, request: Unsubscribe) -> Plan:
        state = self.find(request.namespace, request.name)
        key = (state.namespace, state.name)
        # A queue that other subscriptions share by now stays.
        is_last = list(self._by_queue[state.queue]) == [key]
        delete_queue = None
        if state.owns_queue and is_last and self._queues.exists(state.queue):
            delete_queue = self._queues.plan(DeleteQueue(state.queue))

        def apply() -> Answer:
            self._forget(key)
            if delete_queue is not None:
                delete_queue()
            self._queues.changed = True
            return Done()

        return apply

    def hand_over(self, state: SubscriptionState) -> None:
        """A subscription moves to another broker; its queue stays for what is in flight."""
        self._forget((state.namespace, state.name))

    def is_alone(self, state: SubscriptionState) -> bool:
        """Whether the subscription owns its queue, and shares it with no other one."""
        return state.owns_queue and len(self._by_queue[state.queue]) == 1

    def alone(self) -> list[SubscriptionState]:
        """All for which `is_alone` holds, without a call for each."""
        users = self._by_queue
        return [each for each in self._subscriptions.values() if each.owns_queue and len(users[each.queue]) == 1]

    def _describe_subscription(self, request: DescribeSubscription) -> Answer:
        return Subscribed(self.find(request.namespace, request.name), is_new=False)

    def _list_subscriptions(self, request: ListSubscriptions) -> Answer:
        validation.check_listing(request)
        start = max(
            bisect_left(self._sorted, (request.namespace, request.prefix)),
            bisect_right(self._sorted, (request.namespace, request.after)),
        )
        page: list[SubscriptionState] = []
        for key in self._sorted[start : start + request.count]:
            if key[0] != request.namespace or not key[1].startswith(request.prefix):
                break
            page.append(self._subscriptions[key])
        return SubscriptionsListed(page)

    def _remember(self, state: SubscriptionState) -> None:
        key = (state.namespace, state.name)
        self._subscriptions[key] = state
        self._counters.memory += memory_of(state)
        insort(self._sorted, key)
        self._by_queue.setdefault(state.queue, {})[key] = None
        self.changes.append(Added(state, self._queues.serial(state.queue)))
        self.on_changed(state, True)

    def _forget(self, key: Key) -> None:
        state = self._subscriptions.pop(key)
        self._counters.memory -= memory_of(state)
        del self._sorted[bisect_right(self._sorted, key) - 1]
        users = self._by_queue[state.queue]
        del users[key]
        if not users:
            del self._by_queue[state.queue]
        self.changes.append(Removed(state))
        self.on_changed(state, False)

    def _replace(self, state: SubscriptionState, updated: SubscriptionState) -> None:
        """Neighbouring brokers are told of the new filter first: what both match is never without a route."""
        key = (state.namespace, state.name)
        for ordered in (self._subscriptions, self._by_queue[state.queue]):
            del ordered[key]  # it comes last, like the newest number
        self._subscriptions[key] = updated
        self._by_queue[state.queue][key] = None
        self._counters.memory += memory_of(updated) - memory_of(state)
        self.changes += [Removed(state), Added(updated, self._queues.serial(state.queue), state.number)]
        self.on_changed(updated, True)
        self.on_changed(state, False)

    # ── advertisements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _advertise(self, request: Advertise) -> Plan:
        if not self._queues.is_replay:
            validation.check_advertise(request)
        name = request.name if request.name else f"adv-{self._number + 1}"
        key = (request.namespace, name)
        existing = self._advertisements.get(key)
        if existing is not None and existing.filter == request.filter:
            return unchanged(Advertised(existing, is_new=False))
        if existing is None and len(self._advertisements) >= self.limits.advertisements_max:
            raise QuotaExceeded(
                f"there are {len(self._advertisements)} advertisements, which is the limit; remove some"
            )
        state = AdvertisementState(name, request.namespace, request.filter, self._queues.now_ms)
        grown = memory_of_advertisement(state) - (0 if existing is None else memory_of_advertisement(existing))
        self._queues.check_memory(grown)

        def apply() -> Answer:
            self._number += 1
            self._advertisements[key] = state
            self._advertised.clear()
            self._counters.memory += grown
            self.on_changed(state, True)
            if existing is not None:
                self.on_changed(existing, False)
            self._queues.changed = True
            return Advertised(state, is_new=existing is None)

        return apply

    def _unadvertise(self, request: Unadvertise) -> Plan:
        key = (request.namespace, request.name)
        if key not in self._advertisements:
            shown = request.name[:NAME_CHARACTERS_MAX]
            raise UnknownAdvertisement(
                f"there is no advertisement {shown!r}; GET /advertisements lists the advertisements"
            )

        def apply() -> Answer:
            state = self._advertisements.pop(key)
            self._advertised.clear()
            self._counters.memory -= memory_of_advertisement(state)
            self.on_changed(state, False)
            self._queues.changed = True
            return Done()

        return apply

    def is_advertised(self, namespace: str, attributes: Mapping[str, AttributeValue]) -> bool:
        """Whether an advertisement of the namespace matches a publication."""
        if not self._advertised:
            for (owner, _), state in self._advertisements.items():
                self._advertised.setdefault(owner, []).append(Filter.parse(state.filter, NO_LIMITS))
        return any(each.matches(attributes) for each in self._advertised.get(namespace, ()))

    def _list_advertisements(self, request: ListAdvertisements) -> Answer:
        validation.check_listing(request)
        names = sorted(name for namespace, name in self._advertisements if namespace == request.namespace)
        page = [name for name in names if name > request.after][: request.count]
        return AdvertisementsListed([self._advertisements[request.namespace, name] for name in page])

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _deliver(self, request: Deliver) -> Plan:
        self.log_offsets.check(request.accepted, request.delivered)
        self.log_offsets.check_forget(request.forgotten, request.accepted, request.delivered)
        self._queues.check_memory(sum(memory_of_key(each.key, each.entries) for each in request.answered))
        fan_out = self._queues.plan_fan_out(request.fan_out, is_admitted=bool(request.delivered))

        def apply() -> Answer:
            answer: Answer = fan_out()
            if request.answered:
                self.recent.remember(request.answered, self._queues.now_ms)
            if request.keys:
                self.recent.remember_unplaced(request.keys, self._queues.now_ms)
            self.log_offsets.advance(request.accepted, request.delivered)
            self.log_offsets.forget(request.forgotten)
            if request.answered or request.keys or request.accepted or request.delivered or request.forgotten:
                self._queues.changed = True
            return answer

        return apply

    _PLANNERS: ClassVar[dict[type, Callable[[Subscriptions, Any], Plan]]] = handlers_of(SUBSCRIPTIONS, vars(), COMMANDS)
    _ANSWERS: ClassVar[dict[type, Callable[[Subscriptions, Any], Answer]]] = handlers_of(SUBSCRIPTIONS, vars(), QUERIES)

    # ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def contents(self) -> tuple[int, Iterable[SubscriptionState], Iterable[AdvertisementState]]:
        """The last number, all subscriptions in the order of their numbers, all advertisements."""
        return self._number, self._subscriptions.values(), self._advertisements.values()

    def restore(
        self, number: int, subscriptions: Iterable[SubscriptionState], advertisements: Iterable[AdvertisementState]
    ) -> None:
        """Restore into an empty registry, whose queues exist already."""
        self._number = number
        for state in subscriptions:
            self._remember(state)
        self._advertisements = {(each.namespace, each.name): each for each in advertisements}
        self._counters.memory += sum(map(memory_of_advertisement, self._advertisements.values()))


def _same(existing: SubscriptionState, request: Subscribe) -> SubscriptionState:
    """The existing subscription, if it equals the request."""
    queue = in_namespace(existing.namespace, request.queue) if request.queue else existing.queue
    # Encryption differs each time, even for the same filter.
    is_encrypted = isinstance(existing.filter, EncryptedFilter) and isinstance(request.filter, EncryptedFilter)
    if (is_encrypted or existing.filter == request.filter) and (
        (existing.queue, existing.webhook, existing.lease_ms) == (queue, request.webhook, request.lease_ms)
    ):
        return existing
    raise DuplicateSubscription(
        f"subscription {existing.name!r} exists already with another filter, queue, webhook or lease; "
        "update its filter, unsubscribe first, or choose another name"
    )
