"""The durable state of a broker in its federation: neighbours, the routes they told, and what waits for them.

    LearnRoutes      ──► routes of a neighbour ──► its subscriptions are entries of the matchers, with the link as queue
    Deliver          ──► shares of links ──► queues of neighbours; numbers that were received
    AcknowledgeLink  ──► a queue loses what the neighbour has

A publication that is relayed is marked as received, delivered to local queues and queued for further neighbours by one
record. So each hop happens exactly once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.federation.columns import RoutedColumns
from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.link_queue import LinkQueue, memory_of_batch, size_of
from lavant.broker.federation.numbers import OriginWindows, ReceivedNumbers
from lavant.broker.federation.routes.tables import BUCKETS, KEY_BYTES, RouteTable, key_of
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.federation import (
    AcknowledgeLink,
    AddNeighbour,
    AdvertisedRoute,
    BrokerMember,
    DescribeFederation,
    FederationDescribed,
    LearnRoutes,
    NeighbourRemoved,
    NeighbourView,
    RemoveNeighbour,
    RouteEntry,
    SubscribedRoute,
)
from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.registry import COMMANDS, FEDERATION, QUERIES, handlers_of
from lavant.broker.protocol.subscriptions import Deliver, RoutedPublications, SubscriptionState
from lavant.broker.queues.accounting.memory import ADVERTISEMENT, QUEUE
from lavant.broker.queues.compatibility import NUMBERS_RISE_WITH_LINKS
from lavant.broker.queues.machine import Queues
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.plan import Plan, unchanged
from lavant.broker.subscriptions.memory import memory_of
from lavant.broker.subscriptions.registry import Subscriptions
from lavant.core.errors import UNDECODABLE, InvalidValue, QueueFull, QuotaExceeded, UnknownNeighbour

LINK_SERIAL_MIN = 1 << 31
"""Serials of links begin here; those of queues are below."""
NUMBERS_A_MS = 1000
"""More publications than one broker accepts in a millisecond."""
IDS_LISTED = 10
REMOVED_MAX = 1000
"""Removed brokers that are remembered."""
_DONE = Done()


class _Identified(msgspec.Struct):
    id: str = msgspec.field(name="@id", default="")


_decode_id = msgspec.json.Decoder(_Identified).decode


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the queue of each link. At a bound, publications that must cross the link are refused."""

    neighbours_max: int = 64
    bytes_max: int = 256 << 20
    age_ms_max: int = 24 * 3_600_000
    """Since the oldest publication in it was accepted."""
    routes_max: int = 2_000_000
    """Routes of one neighbour."""


UNLIMITED_LINKS = LinkLimits(neighbours_max=1 << 62, bytes_max=1 << 62, age_ms_max=1 << 62, routes_max=1 << 62)


class Neighbour:
    """A neighbouring broker."""

    def __init__(self, name: str, identity: str, link: str, serial: int) -> None:
        self.name = name
        self.identity = identity
        self.link = link
        self.serial = serial
        """In the fan-out of publications, the link is a queue with this number."""
        self.queue = LinkQueue()
        self.received = ReceivedNumbers()
        self.routes = RouteTable()
        self.subscriptions: dict[bytes, SubscriptionState] = {}
        """By key of the route: the entries of the matchers."""
        self.memory = QUEUE

    def add_route(self, entry: RouteEntry, number: int) -> SubscriptionState | None:
        """Returns the matchers' entry for a new subscription."""
        key = self.routes.add(entry)
        if key is None:
            return None
        self.memory += memory_of_route(entry)
        if not isinstance(entry, SubscribedRoute):
            return None
        state = SubscriptionState(number, "", entry.namespace, entry.filter, "", False, None, 0)
        self.subscriptions[key] = state
        return state


class FederationState:
    """All neighbours. `changed` hooks are for the link machine, which is not there during a replay."""

    def __init__(self, queues: Queues, subscriptions: Subscriptions) -> None:
        self.limits = LinkLimits()
        self.neighbours: dict[str, Neighbour] = {}
        self.changes = 0
        """How often neighbours were added or removed."""
        self.published = 0
        """The last number of a publication that was published here. It rises with the clock when a link begins: an
        older copy of a data directory must not give numbers again, which other brokers would take for copies."""
        self.removed: dict[str, None] = {}
        """Identities of brokers that were removed and may not join by themselves, the oldest first."""
        self.origins = OriginWindows()
        self.on_learned: Callable[[Neighbour, list[RouteEntry], list[RouteEntry]], None] = lambda *_: None
        """Called with the neighbour, and the routes that were added and removed."""
        self.on_neighbours: Callable[[], None] = lambda: None
        """Called when a neighbour was added or removed."""
        self._serial = 0
        self._by_serial: dict[int, Neighbour] = {}
        self._by_link: dict[str, Neighbour] = {}
        self._queues = queues
        self._subscriptions = subscriptions

    def find(self, name: str, link: str | None = None) -> Neighbour:
        neighbour = self.neighbours.get(name)
        if neighbour is None or link not in (None, neighbour.link):
            known = ", ".join(self.neighbours) if self.neighbours else "none"
            raise UnknownNeighbour(f"there is no neighbour {name[:80]!r}; this broker's neighbours: {known}")
        return neighbour

    def entries(self) -> Iterator[tuple[SubscriptionState, int]]:
        """All subscriptions of neighbours as the matchers need them, with the serials of their links."""
        for neighbour in self.neighbours.values():
            for state in neighbour.subscriptions.values():
                yield state, neighbour.serial

    def plan(self, request: Request) -> Plan:
        """Check a command and return its plan, to be applied before anything else happens."""
        return self._PLANNERS[type(request)](self, request)

    def answer(self, request: Any) -> Answer:
        """Answer a query, which changes nothing."""
        return self._ANSWERS[type(request)](self, request)

    # ── neighbours ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add_neighbour(self, request: AddNeighbour) -> Plan:
        known = self.neighbours.get(request.name)
        if known is not None:
            if (known.identity, known.link) == (request.identity, request.link):
                return unchanged(_DONE)
            raise InvalidValue(f"there is a neighbour {request.name!r} already; remove it first")
        if request.link in self._by_link:
            raise InvalidValue(f"there is a link {request.link!r} already; begin a new one")
        if not self._queues.is_replay:
            if not request.name or not request.identity or not request.link:
                raise InvalidValue("a neighbour needs a name, an identity and a link")
            if len(self.neighbours) >= self.limits.neighbours_max:
                raise QuotaExceeded(f"there are {len(self.neighbours)} neighbours, which is the limit; remove some")
        self._queues.check_memory(QUEUE)

        def apply() -> Answer:
            self._serial += 1
            self._enter(Neighbour(request.name, request.identity, request.link, LINK_SERIAL_MIN + self._serial))
            self.removed.pop(request.identity, None)
            if self._queues.counters.rules >= NUMBERS_RISE_WITH_LINKS:
                self.published = max(self.published, self._queues.now_ms * NUMBERS_A_MS)
            self.changes += 1
            self._queues.changed = True
            self.on_neighbours()
            return _DONE

        return apply

    def _remove_neighbour(self, request: RemoveNeighbour) -> Plan:
        neighbour = self.find(request.name)

        def apply() -> Answer:
            queue = neighbour.queue
            answer = NeighbourRemoved(neighbour.name, len(queue), queue.bytes, queue.oldest_ms, _first_ids(queue))
            routes = list(neighbour.routes)
            self._forget_routes(neighbour, [key_of(entry) for entry in routes])
            self._queues.counters.memory -= neighbour.memory + queue.memory
            del self.neighbours[neighbour.name], self._by_serial[neighbour.serial], self._by_link[neighbour.link]
            if request.is_final:
                self.removed[neighbour.identity] = None
                while len(self.removed) > REMOVED_MAX:
                    del self.removed[next(iter(self.removed))]
            self.changes += 1
            self._queues.changed = True
            self.on_learned(neighbour, [], routes)
            self.on_neighbours()
            return answer

        return apply

    def _describe_federation(self, request: DescribeFederation) -> Answer:
        return FederationDescribed(self.changes, [_view(each) for each in self.neighbours.values()])

    # ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _learn_routes(self, request: LearnRoutes) -> Plan:
        neighbour = self.find(request.neighbour, request.link)
        if any(not 0 <= bucket < BUCKETS for bucket in request.buckets):
            raise InvalidValue(f"a bucket of routes has a number below {BUCKETS}, got {max(request.buckets)}")
        if any(len(key) != KEY_BYTES for key in request.removed):
            raise InvalidValue(f"the key of a route has {KEY_BYTES} bytes")
        wanted = {key_of(entry): entry for entry in request.added}
        new = {key: entry for key, entry in wanted.items() if key not in neighbour.routes}
        replaced = (key for bucket in request.buckets for key in neighbour.routes.keys_in(bucket))
        old = [key for key in dict.fromkeys([*request.removed, *replaced]) if key in neighbour.routes]
        old = [key for key in old if key not in wanted]
        numbers = self._subscriptions.numbers(sum(isinstance(entry, SubscribedRoute) for entry in new.values()))
        if not self._queues.is_replay and len(neighbour.routes) + len(new) - len(old) > self.limits.routes_max:
            raise QuotaExceeded(
                f"neighbour {neighbour.name!r} has over {self.limits.routes_max} routes; remove subscriptions there"
            )
        self._queues.check_memory(sum(map(memory_of_route, new.values())))

        def apply() -> Answer:
            if not new and not old:
                return _DONE
            held = neighbour.memory
            self._subscriptions.take_numbers(numbers)
            free = iter(numbers)
            for entry in new.values():
                state = neighbour.add_route(entry, next(free) if isinstance(entry, SubscribedRoute) else 0)
                if state is not None:
                    self._subscriptions.route_added(state, neighbour.serial)
            self._queues.counters.memory += neighbour.memory - held
            forgotten = self._forget_routes(neighbour, old)
            self._queues.changed = True
            self.on_learned(neighbour, list(new.values()), forgotten)
            return _DONE

        return apply

    def _forget_routes(self, neighbour: Neighbour, keys: Iterable[bytes]) -> list[RouteEntry]:
        forgotten: list[RouteEntry] = []
        for key in keys:
            entry = neighbour.routes.remove(key)
            if entry is None:
                continue
            forgotten.append(entry)
            size = memory_of_route(entry)
            neighbour.memory -= size
            self._queues.counters.memory -= size
            state = neighbour.subscriptions.pop(key, None)
            if state is not None:
                self._subscriptions.route_removed(state)
        return forgotten

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def plan_routed(self, request: Deliver) -> Plan | None:
        """The part of a `Deliver` that concerns neighbours; None if there is none."""
        routed = request.routed
        if routed is None:
            return None
        columns = RoutedColumns(routed, len(request.fan_out.bodies))
        received = self._check_received(routed, columns)
        batches = self._batches(request, routed, columns)
        if not self._queues.is_replay:
            if request.fan_out.queues:  # those that are dropped are copies
                self._check_copies(routed, columns)
            self._check_room(batches)
        memory = sum(memory_of_batch(batch) for _, batch in batches)
        self._queues.check_memory(memory)

        def apply() -> None:
            self.published += columns.published
            for neighbour, numbers in received:
                neighbour.received.add(numbers)
            for index, origin in enumerate(routed.origins, 1):
                self.origins.add(origin, columns.origin_numbers[columns.origin_of == index])
            for neighbour, batch in batches:
                held = neighbour.queue.memory
                neighbour.queue.add(batch)
                self._queues.counters.memory += neighbour.queue.memory - held
            self._queues.changed = True

        return apply

    def _check_received(self, routed: RoutedPublications, columns: RoutedColumns) -> list[tuple[Neighbour, list[int]]]:
        """By neighbour, the numbers that are received with this record. Raises if one was received before."""
        received: list[tuple[Neighbour, list[int]]] = []
        for index, link in enumerate(routed.sources, 1):
            neighbour = self._by_link.get(link)
            if neighbour is None:
                raise UnknownNeighbour(f"the link {link!r}, over which a publication came, was removed")
            numbers = columns.numbers[columns.source_of == index].tolist()
            twice = [number for number in numbers if number in neighbour.received]
            if twice or len(set(numbers)) < len(numbers):
                raise InvalidValue(f"publication {twice[:1]} of neighbour {neighbour.name!r} was received before")
            received.append((neighbour, numbers))
        return received

    def _check_copies(self, routed: RoutedPublications, columns: RoutedColumns) -> None:
        """Raise if a publication came over another link too: in this record, or in one since it was taken."""
        for index, origin in enumerate(routed.origins, 1):
            mine = columns.origin_numbers[columns.origin_of == index]
            is_twice = len(routed.sources) > 1 and len(np.unique(mine)) < len(mine)
            if is_twice or self.origins.seen(origin, mine).any():
                raise InvalidValue("a publication came over two links; it is taken from one")

    def _batches(
        self, request: Deliver, routed: RoutedPublications, columns: RoutedColumns
    ) -> list[tuple[Neighbour, LinkPublications]]:
        fan_out = request.fan_out
        serials, ends = np.frombuffer(fan_out.queues, INTEGERS), np.frombuffer(fan_out.ends, INTEGERS)
        batches: list[tuple[Neighbour, LinkPublications]] = []
        for place in np.flatnonzero(serials >= LINK_SERIAL_MIN).tolist():
            neighbour = self._by_serial.get(int(serials[place]))
            if neighbour is None:  # removed meanwhile
                continue
            start = int(ends[place - 1]) if place else 0
            rows = np.frombuffer(fan_out.indexes, INTEGERS)[start : int(ends[place])]
            if len(rows) and rows.max() >= len(fan_out.bodies):
                raise InvalidValue(f"neighbour {neighbour.name!r} is to get body {rows.max()}, but there are fewer")
            if neighbour.link in routed.sources:  # it does not go back where it came from
                rows = rows[columns.source_of[rows] != routed.sources.index(neighbour.link) + 1]
            if len(rows):
                batches.append((neighbour, self._batch(neighbour, request, routed, columns, rows)))
        return batches

    def _batch(
        self,
        neighbour: Neighbour,
        request: Deliver,
        routed: RoutedPublications,
        columns: RoutedColumns,
        rows: NDArray[np.uint32],
    ) -> LinkPublications:
        bodies, chosen = request.fan_out.bodies, rows.tolist()
        return LinkPublications(
            first=neighbour.queue.number + 1,
            namespace=routed.namespace,
            bodies=[bodies[row] for row in chosen],
            points=[routed.points[row] for row in chosen] if routed.points else [],
            origins=["", *routed.origins],
            origin_of=columns.origin_of[rows].astype("<u2").tobytes(),
            origin_numbers=columns.numbered(self.published)[rows].astype("<u8").tobytes(),
            hops=columns.hops[rows].tobytes(),
            entered_ms=self._queues.now_ms,
        )

    def _check_room(self, batches: list[tuple[Neighbour, LinkPublications]]) -> None:
        limits, now_ms = self.limits, self._queues.now_ms
        for neighbour, batch in batches:
            queue = neighbour.queue
            if queue.bytes and queue.bytes + size_of(batch) > limits.bytes_max:
                raise _full(neighbour, f"{queue.bytes} bytes wait for it, and {limits.bytes_max} may", "bytes")
            age_ms = 0 if queue.oldest_ms is None else now_ms - queue.oldest_ms
            if age_ms > limits.age_ms_max:
                why = f"the oldest publication waits for {age_ms} ms, and {limits.age_ms_max} may"
                raise _full(neighbour, why, "s")

    def _acknowledge_link(self, request: AcknowledgeLink) -> Plan:
        neighbour = self.find(request.neighbour, request.link)
        if request.number > neighbour.queue.number:
            raise InvalidValue(
                f"neighbour {neighbour.name!r} confirms publication {request.number}, but only "
                f"{neighbour.queue.number} were queued for it"
            )

        def apply() -> Answer:
            held, count = neighbour.queue.memory, len(neighbour.queue)
            neighbour.queue.acknowledge(request.number)
            self._queues.counters.memory += neighbour.queue.memory - held
            self._queues.changed = len(neighbour.queue) < count
            return _DONE

        return apply

    _PLANNERS: ClassVar[dict[type, Callable[[FederationState, Any], Plan]]] = handlers_of(FEDERATION, vars(), COMMANDS)
    _ANSWERS: ClassVar[dict[type, Callable[[FederationState, Any], Answer]]] = handlers_of(FEDERATION, vars(), QUERIES)

    # ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_empty(self) -> bool:
        """Whether this broker never had a neighbour."""
        return not self._serial

    @property
    def serial(self) -> int:
        """The last serial of a link, counted from its first."""
        return self._serial

    def restore(self, serial: int, changes: int, published: int, neighbours: Iterable[Neighbour]) -> None:
        """Restore into an empty state."""
        self._serial, self.changes, self.published = serial, changes, published
        for neighbour in neighbours:
            self._enter(neighbour)
            self._queues.counters.memory += neighbour.queue.memory + neighbour.memory - QUEUE
            for state in neighbour.subscriptions.values():
                self._subscriptions.route_added(state, neighbour.serial)

    def _enter(self, neighbour: Neighbour) -> None:
        self.neighbours[neighbour.name] = neighbour
        self._by_serial[neighbour.serial] = neighbour
        self._by_link[neighbour.link] = neighbour
        self._queues.counters.memory += QUEUE


def memory_of_route(entry: RouteEntry) -> int:
    if isinstance(entry, SubscribedRoute):
        return memory_of(SubscriptionState(0, "", entry.namespace, entry.filter, "", False, None, 0))
    if isinstance(entry, AdvertisedRoute):
        return ADVERTISEMENT + len(entry.filter)
    return ADVERTISEMENT + 64 * len(entry.path)


def _full(neighbour: Neighbour, why: str, unit: str) -> QueueFull:
    return QueueFull(
        f"the queue for neighbour {neighbour.name!r} is full: {why}; publish again when the neighbour is reachable, "
        f"raise the limit link_waiting_{unit}_max of this broker, or remove the neighbour with `lavant federation rm "
        f"{neighbour.name}`"
    )


def _first_ids(queue: LinkQueue) -> list[str]:
    ids: list[str] = []
    for batch in queue.batches():
        ids += [_id_of(body) for body in batch.bodies[: IDS_LISTED - len(ids)]]
        if len(ids) >= IDS_LISTED:
            break
    return ids


def _id_of(body: bytes) -> str:
    try:
        return _decode_id(body).id
    except UNDECODABLE:  # a plan does not fail, whatever the body is
        return ""


def _view(neighbour: Neighbour) -> NeighbourView:
    queue, kinds = neighbour.queue, neighbour.routes.kinds
    return NeighbourView(
        neighbour.name,
        neighbour.identity,
        neighbour.link,
        len(queue),
        queue.bytes,
        queue.oldest_ms,
        queue.number,
        len(neighbour.received),
        kinds[BrokerMember],
        kinds[AdvertisedRoute],
        kinds[SubscribedRoute],
    )
