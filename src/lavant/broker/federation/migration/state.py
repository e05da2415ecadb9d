"""The durable state of subscriptions that move between brokers.

    old broker                                       new broker
    OfferSubscription      OFFERED
        notes publications that its queue gets       PrepareArrival       PREPARED
                                                         its queue gets publications too, and delivers none
    (all brokers between them know the new route)
    HandOverSubscription   HANDED_OVER
        its queue gets nothing more                  TakeMessages         messages of the old queue
    ForgetMessages         which the new one has     OpenArrival          OPEN
        what is in flight stays until it is              publications that the old queue got are deleted, and the
        acknowledged, or visible again and follows       queue delivers
        dead letters follow at the end
    EndDeparture           gone; the name redirects  EndArrival           done

Until it is handed over, the move can be undone on both sides: the old queue has everything. From then on it is
completed. A publication may be in both queues until the new one is opened; the old broker's notes decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, ClassVar

import msgspec
import numpy as np

from lavant.broker.federation.columns import RoutedColumns
from lavant.broker.federation.migration.values import OriginNumbers, draining, imported, occupied, subscribe_of
from lavant.broker.federation.state import FederationState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.federation import (
    EndArrival,
    EndDeparture,
    ForgetMessages,
    HandOverSubscription,
    MovingSubscription,
    OfferSubscription,
    OpenArrival,
    PrepareArrival,
    RedirectSubscription,
    TakeMessages,
)
from lavant.broker.protocol.namespaces import in_namespace
from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.registry import COMMANDS, MIGRATION, handlers_of
from lavant.broker.protocol.subscriptions import Deliver, SubscriptionState, Unsubscribe
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.broker.queues.machine import NEVER, Queues
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.operations.transfer import Relocation, RelocationStage
from lavant.broker.queues.plan import Plan, unchanged
from lavant.broker.subscriptions.registry import Key, Subscriptions
from lavant.core.errors import InvalidValue, MoveRunning, QuotaExceeded, UnknownSubscription

MIGRATIONS_MAX = 256
"""Subscriptions that may leave a broker at the same time, and that may arrive."""
NOTED_MAX = 250_000
"""Publications that an old queue may get before the subscription is handed over; then the move is undone."""
REDIRECTS_MAX = 1_000_000
"""The oldest is forgotten first."""
_DONE = Done()


class Departure(msgspec.Struct):
    """A subscription that leaves."""

    migration: str
    namespace: str
    name: str
    queue: str
    target: str
    """The identity of the new broker; next its name."""
    broker: str
    address: str
    deadline_ms: int
    offer: MovingSubscription
    taken: OriginNumbers
    is_handed_over: bool = False


class Arrival(msgspec.Struct):
    """A subscription that comes."""

    migration: str
    source: str
    """The identity of the old broker; next its name."""
    broker: str
    namespace: str
    name: str
    queue: str
    serial: int
    """Of the queue: once the subscription ended, another queue may have its name."""
    is_open: bool = False
    followed: dict[int, int] = {}
    """Messages that followed: numbers at the old broker, and here."""
    published: dict[int, tuple[str, int]] = {}
    """By number of the message: origin and number of each publication that came here directly, until it is open."""


class Migrations:
    """All subscriptions that leave or come, and the names that are redirected."""

    def __init__(self, queues: Queues, subscriptions: Subscriptions, federation: FederationState) -> None:
        self.departures: dict[str, Departure] = {}
        self.arrivals: dict[str, Arrival] = {}
        self.redirects: dict[Key, tuple[str, Relocation]] = {}
        """By subscription: its queue, and where it is."""
        self._queues = queues
        self._subscriptions = subscriptions
        self._federation = federation
        self._noting: dict[int, Departure | Arrival] = {}
        """By serial of the queue."""
        self._arriving: dict[str, Arrival] = {}
        """By queue: the last arrival with that name."""
        queues.sweeps.add(self.forget_redirects, self.redirects.__len__)

    def plan(self, request: Request) -> Plan:
        """Check a command and return its plan, to be applied before anything else happens."""
        return self._PLANNERS[type(request)](self, request)

    def find(self, namespace: str, name: str) -> SubscriptionState:
        """A subscription of this broker; raises if it has moved, or does not exist."""
        return self._subscriptions.find(namespace, name)

    def dead_letters(self, departure: Departure) -> dict[int, Message]:
        """The dead letters of a subscription that leaves, by number. Read only."""
        letters = departure.offer.config.dead_letters
        if letters is None or not self._queues.exists(letters):
            return {}
        held = self._queues.transfers.find(letters).messages
        return {number: each for number, each in held.items() if each.origin == departure.queue}

    def movable(self) -> list[SubscriptionState]:
        """The subscriptions that could move now."""
        moving, arriving = self._queues.transfers.relocations, self._arriving
        return [
            each
            for each in self._subscriptions.alone()
            if each.queue not in moving and (each.queue not in arriving or self._arrival_of(each) is None)
        ]

    def _redirect_subscription(self, request: RedirectSubscription) -> Plan:
        if not request.name:
            raise InvalidValue("only a subscription with a name can be redirected")
        key, queue = (request.namespace, request.name), in_namespace(request.namespace, request.name)
        if self._subscriptions.has(*key) or self._queues.exists(queue):
            return unchanged(_DONE)

        def apply() -> Answer:
            if request.redirect_ms:
                until_ms = self._queues.now_ms + request.redirect_ms
                self._redirect(key, queue, request.broker, request.address, until_ms)
            elif key in self.redirects:
                self._forget_redirect(key)
            return self._done()

        return apply

    # ── the old broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def _offer_subscription(self, request: OfferSubscription) -> Plan:
        state = self.find(request.namespace, request.name)
        if request.migration in self.departures:
            return unchanged(_DONE)
        if self._queues.transfers.relocations.get(state.queue) is not None:
            raise self._queues.transfers.relocations[state.queue].moving()
        arrival = self._arrival_of(state)
        if arrival is not None and arrival.is_open:
            raise draining(state.name, arrival.broker)
        if arrival is not None:
            raise Relocation(RelocationStage.ARRIVING, state.name, arrival.broker).moving()
        if any(state.queue in (each.source, each.destination) for each in self._queues.moves_running()):
            raise MoveRunning(
                f"messages of queue {state.queue!r} are being moved; move the subscription when that is over"
            )
        if not self._subscriptions.is_alone(state):
            raise InvalidValue(
                f"subscription {state.name!r} shares queue {state.queue!r}, so it cannot move; only a subscription "
                "that owns its queue can"
            )
        if len(self.departures) >= MIGRATIONS_MAX and not self._queues.is_replay:
            raise QuotaExceeded(f"{len(self.departures)} subscriptions are moving, which is the limit; try again later")
        departure = Departure(
            request.migration,
            request.namespace,
            request.name,
            state.queue,
            request.target,
            request.broker,
            request.address,
            request.deadline_ms,
            self._described(state),
            OriginNumbers(),
        )

        def apply() -> Answer:
            self._enter_departure(departure)
            return self._done()

        return apply

    def _hand_over_subscription(self, request: HandOverSubscription) -> Plan:
        departure = self._departure(request.migration)
        if departure.is_handed_over:
            return unchanged(_DONE)
        state = self._subscriptions.find(departure.namespace, departure.name)

        def apply() -> Answer:
            departure.is_handed_over = True
            self._note(departure.queue, None)
            self._queues.transfers.detach(departure.queue)
            self._subscriptions.hand_over(state)
            self._redirect_departed(departure, NEVER)
            return self._done()

        return apply

    def _forget_messages(self, request: ForgetMessages) -> Plan:
        departure = self._departure(request.migration)
        letters, transfers = departure.offer.config.dead_letters, self._queues.transfers
        queues = [departure.queue, *([letters] if letters is not None and self._queues.exists(letters) else [])]
        if not any(number in transfers.find(queue).messages for queue in queues for number in request.numbers):
            return unchanged(_DONE)

        def apply() -> Answer:
            for queue in queues:
                transfers.drop(queue, request.numbers)
            return self._done()

        return apply

    def _end_departure(self, request: EndDeparture) -> Plan:
        departure = self._departure(request.migration)
        delete = self._queues.plan_delete(departure.queue) if departure.is_handed_over else None

        def apply() -> Answer:
            del self.departures[departure.migration]
            if delete is None:
                self._note(departure.queue, None)
                del self._queues.transfers.relocations[departure.queue]
            else:
                delete()
                self._redirect_departed(departure, self._queues.now_ms + request.redirect_ms)
            return self._done()

        return apply

    def _described(self, state: SubscriptionState) -> MovingSubscription:
        queue = self._queues.transfers.find(state.queue)
        letters = queue.config.dead_letters
        exists = letters is not None and self._queues.exists(letters)
        return MovingSubscription(
            state.namespace,
            state.name,
            state.filter,
            state.queue.removeprefix(in_namespace(state.namespace, "")),
            queue.config,
            queue.tags,
            state.webhook,
            state.lease_ms,
            self._queues.config(letters) if letters is not None and exists else None,
        )

    # ── the new broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare_arrival(self, request: PrepareArrival) -> Plan:
        if request.migration in self.arrivals:
            return unchanged(_DONE)
        wanted = request.subscription
        if not wanted.name or not wanted.queue:
            raise InvalidValue("a subscription that moves needs a name and a queue")
        queue = in_namespace(wanted.namespace, wanted.queue)
        if self._queues.exists(queue) or self._subscriptions.has(wanted.namespace, wanted.name):
            raise occupied(wanted.name, queue, self._queues.transfers)
        if len(self.arrivals) >= MIGRATIONS_MAX and not self._queues.is_replay:
            raise QuotaExceeded(f"{len(self.arrivals)} subscriptions are arriving, which is the limit; try again later")
        redirected = self.redirects.get((wanted.namespace, wanted.name))
        subscribe = self._as_if_here(
            queue, lambda: self._subscriptions.plan_subscribe(subscribe_of(wanted), wanted.dead_letters)
        )

        def apply() -> Answer:
            if redirected is not None:
                self._forget_redirect((wanted.namespace, wanted.name))
            subscribe()
            self._queues.transfers.tag(queue, wanted.tags)
            self._enter_arrival(
                Arrival(
                    request.migration,
                    request.source,
                    request.broker,
                    wanted.namespace,
                    wanted.name,
                    queue,
                    self._queues.serial(queue),
                    False,
                    {},
                    {},
                )
            )
            return self._done()

        return apply

    def _take_messages(self, request: TakeMessages) -> Plan:
        arrival = self._arrival(request.migration)
        if not self._is_there(arrival):  # unsubscribed meanwhile: nobody wants them
            return unchanged(_DONE)
        new = [each for each in request.messages if each.number not in arrival.followed]
        if not new:  # they came again while a slow disk took them
            return unchanged(_DONE)
        self._queues.check_memory(sum(MESSAGE + len(each.body) + len(each.attributes) for each in new))
        letters = self._queues.transfers.find(arrival.queue).config.dead_letters

        def apply() -> Answer:
            messages = [imported(each, self._queues.now_ms) for each in new]
            dead = [each for each in messages if each.origin == arrival.queue]
            self._queues.transfers.take_in(arrival.queue, [each for each in messages if each.origin != arrival.queue])
            if dead and letters is not None and self._queues.exists(letters):
                self._queues.transfers.take_in(letters, dead)
            arrival.followed.update((each.number, message.number) for each, message in zip(new, messages, strict=True))
            return self._done()

        return apply

    def _open_arrival(self, request: OpenArrival) -> Plan:
        arrival = self._arrival(request.migration)
        if arrival.is_open:
            return unchanged(_DONE)
        taken = OriginNumbers(request.taken).pairs()

        def apply() -> Answer:
            held = self._queues.transfers.find(arrival.queue).messages
            followed = [number for number in arrival.followed.values() if number in held]
            first = set(followed)
            others = [each for each in held if each not in first and arrival.published.get(each) not in taken]
            arrival.is_open = True
            arrival.published = {}
            arrival.followed = dict.fromkeys(arrival.followed, 0)
            self._note(arrival.queue, None)
            del self._queues.transfers.relocations[arrival.queue]
            self._queues.transfers.arrange(arrival.queue, [*followed, *others], above=request.number)
            return self._done()

        return apply

    def _end_arrival(self, request: EndArrival) -> Plan:
        arrival = self._arrival(request.migration)
        unsubscribe = Unsubscribe(arrival.name, arrival.namespace)
        undo = None
        if not arrival.is_open:
            undo = self._as_if_here(arrival.queue, lambda: self._subscriptions.plan(unsubscribe))

        def apply() -> Answer:
            del self.arrivals[arrival.migration]
            if self._arriving.get(arrival.queue) is arrival:
                del self._arriving[arrival.queue]
            if undo is not None:
                self._note(arrival.queue, None)
                del self._queues.transfers.relocations[arrival.queue]
                undo()
            return self._done()

        return apply

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────────

    def plan_noted(self, request: Deliver) -> Callable[[], None] | None:
        """Notes which publications enter queues that move; to be applied after they did. None if there is none."""
        if not self._noting or request.routed is None:
            return None
        fan_out = request.fan_out
        serials = np.frombuffer(fan_out.queues, INTEGERS).tolist()
        places = [place for place, serial in enumerate(serials) if serial in self._noting]
        if not places:
            return None
        columns = RoutedColumns(request.routed, len(fan_out.bodies))
        origins = ["", *request.routed.origins]
        numbers = columns.numbered(self._federation.published).tolist()
        origin_of = columns.origin_of.tolist()
        ends = [0, *np.frombuffer(fan_out.ends, INTEGERS).tolist()]
        indexes = np.frombuffer(fan_out.indexes, INTEGERS)

        def apply() -> None:
            for place in places:
                rows = indexes[ends[place] : ends[place + 1]].tolist()
                noted = [(origins[origin_of[row]], numbers[row]) for row in rows]
                mover = self._noting[serials[place]]
                if isinstance(mover, Departure):
                    for origin, number in noted:
                        mover.taken.add(origin, number)
                else:
                    entered = self._queues.transfers.find(mover.queue).messages
                    latest = list(islice(reversed(entered), len(rows)))
                    mover.published.update(zip(reversed(latest), noted, strict=True))

        return apply

    # ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def restore(
        self,
        departures: Iterable[Departure],
        arrivals: Iterable[Arrival],
        redirects: Iterable[tuple[Key, str, Relocation]],
    ) -> None:
        """Restore into an empty state, whose subscriptions and queues exist already."""
        for key, queue, relocation in redirects:
            self.redirects[key] = queue, relocation
            self._subscriptions.moved[key] = self._queues.transfers.relocations[queue] = relocation
        for departure in departures:
            self._enter_departure(departure)
        for arrival in arrivals:
            self._enter_arrival(arrival)

    def _enter_departure(self, departure: Departure) -> None:
        self.departures[departure.migration] = departure
        if not departure.is_handed_over:
            self._note(departure.queue, departure)
            self._queues.transfers.relocations[departure.queue] = Relocation(
                RelocationStage.LEAVING, departure.name, departure.broker
            )

    def _enter_arrival(self, arrival: Arrival) -> None:
        self.arrivals[arrival.migration] = self._arriving[arrival.queue] = arrival
        if not arrival.is_open:
            self._note(arrival.queue, arrival)
            self._queues.transfers.relocations[arrival.queue] = Relocation(
                RelocationStage.ARRIVING, arrival.name, arrival.broker
            )

    def _note(self, queue: str, mover: Departure | Arrival | None) -> None:
        serial = self._queues.serial(queue)
        if mover is None:
            self._noting.pop(serial, None)
        else:
            self._noting[serial] = mover

    def _redirect_departed(self, departure: Departure, until_ms: int) -> None:
        key = (departure.namespace, departure.name)
        self._redirect(key, departure.queue, departure.broker, departure.address, until_ms)

    def _redirect(self, key: Key, queue: str, broker: str, address: str, until_ms: int) -> None:
        relocation = Relocation(RelocationStage.LEFT, key[1], broker, address, until_ms)
        self.redirects.pop(key, None)
        while len(self.redirects) >= REDIRECTS_MAX:
            self._forget_redirect(next(iter(self.redirects)))
        self.redirects[key] = queue, relocation
        self._subscriptions.moved[key] = self._queues.transfers.relocations[queue] = relocation

    def _forget_redirect(self, key: Key) -> None:
        queue, relocation = self.redirects.pop(key)
        self._subscriptions.moved.pop(key, None)
        if self._queues.transfers.relocations.get(queue) is relocation:
            del self._queues.transfers.relocations[queue]

    def forget_redirects(self, now_ms: int) -> None:
        """Forget those that are over."""
        for key in [key for key, (_, each) in self.redirects.items() if each.until_ms <= now_ms]:
            self._forget_redirect(key)

    def _as_if_here(self, queue: str, plan: Callable[[], Plan]) -> Plan:
        """Plan something for a queue that is redirected, or arrives, as if it were not."""
        relocations = self._queues.transfers.relocations
        relocation = relocations.pop(queue, None)
        try:
            return plan()
        finally:
            if relocation is not None:
                relocations[queue] = relocation

    def _arrival_of(self, state: SubscriptionState) -> Arrival | None:
        """The move that brings a subscription here, unless it is over."""
        arrival = self._arriving.get(state.queue)
        return arrival if arrival is not None and self._is_there(arrival) else None

    def _is_there(self, arrival: Arrival) -> bool:
        """Whether the queue of an arrival exists still."""
        return self._queues.exists(arrival.queue) and self._queues.serial(arrival.queue) == arrival.serial

    def _departure(self, migration: str) -> Departure:
        found = self.departures.get(migration)
        if found is None:
            raise UnknownSubscription(f"no subscription leaves with the move {migration[:80]!r}")
        return found

    def _arrival(self, migration: str) -> Arrival:
        found = self.arrivals.get(migration)
        if found is None:
            raise UnknownSubscription(f"no subscription comes with the move {migration[:80]!r}")
        return found

    def _done(self) -> Answer:
        self._queues.changed = True
        return _DONE

    _PLANNERS: ClassVar[dict[type, Callable[[Migrations, Any], Plan]]] = handlers_of(MIGRATION, vars(), COMMANDS)
