"""Drives subscriptions from broker to broker: sends what the other side needs next until it has confirmed it.

    A (old)                                           B (new)
      │ OfferSubscription                               │
      │ PathFlush, MigrationOffer ────────────────────► │  PrepareArrival: all that A got before has passed B
      │ ◄──────────────────────────────────── PathFlush │  every broker between them routes to B by now
      │ HandOverSubscription                            │
      │ PathFlush ────────────────────────────────────► │  all that A got, and B too, has arrived at B
      │ MigrationMessages … ──────────────────────────► │  TakeMessages
      │ ForgetMessages ◄───────────────── MessagesTaken │
      │ MigrationOpen ────────────────────────────────► │  OpenArrival: without what A got
      │ ◄────────────────────────────── MigrationOpened │
      │ MigrationMessages as leases end; dead letters ► │
      │ EndDeparture                                    │
      │ MigrationOver ────────────────────────────────► │  EndArrival

What is durable is in `Migrations`. Frames may get lost: each side repeats what is due until the other one answers, and
each step can be repeated. After a restart both go on where they were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lavant.broker.federation.effects import FrameReceived
from lavant.broker.federation.frames import (
    BalancingContent,
    BrokerMessage,
    MessagesTaken,
    MigrationContent,
    MigrationMessages,
    MigrationOffer,
    MigrationOpen,
    MigrationOpened,
    MigrationOver,
    MigrationQuestion,
    MigrationRefused,
    MigrationUnknown,
    PathFlush,
)
from lavant.broker.federation.migration.flush import FLUSH_MS_MAX, PathFlushes
from lavant.broker.federation.migration.state import NOTED_MAX, Arrival, Departure
from lavant.broker.federation.migration.values import exported
from lavant.broker.federation.session import LinkSession
from lavant.broker.protocol.commands import Command
from lavant.broker.protocol.federation import (
    BrokerMember,
    EndArrival,
    EndDeparture,
    ForgetMessages,
    HandOverSubscription,
    MovingMessage,
    OfferSubscription,
    OpenArrival,
    PrepareArrival,
    TakeMessages,
)
from lavant.broker.queues.machine import NEVER
from lavant.broker.queues.message import Message
from lavant.core.errors import InvalidValue, LavantError

if TYPE_CHECKING:
    from lavant.broker.federation.machine import FederationMachine

BATCH_MESSAGES = 1000
OFFERED, PREPARED, HANDED_OVER = "offered", "prepared", "handed over"
"""The steps after which the path to the other broker is flushed."""
OFFERS_MAX = 1000
"""Offers that wait for their flush; the oldest is forgotten first."""
ORPHANED_MS = 600_000
"""A subscription that waits for an old broker which is not in the federation any more is undone after that long."""


class _Driver(msgspec.Struct):
    """What is in memory about one move."""

    due_ms: int
    """When to send again."""
    waits_ms: int = 0
    is_flushed: bool = False
    """Of an arrival: what the old queue got has arrived."""
    opening: MigrationOpen | None = None
    """The old broker asked to open the queue before that."""
    is_opened: bool = False
    """Of a departure: the new queue delivers."""
    numbers: deque[int] = msgspec.field(default_factory=deque)
    """Messages of a departure, in order."""
    in_flight: int = 0
    """Messages that were sent, and not confirmed."""
    member_ms: int = 0
    """When the other broker was last in the federation."""


class MigrationOutcome(msgspec.Struct, frozen=True):
    """What became of a move."""

    migration: str
    namespace: str
    name: str
    broker: str
    address: str
    is_complete: bool
    reason: str
    pause_ms: int
    """From handing over until the new queue delivered."""


class SubscriptionMigrations:
    """All moves from and to one broker."""

    def __init__(self, machine: FederationMachine) -> None:
        self.state = machine.server.broker.migrations
        self.on_ended: Callable[[MigrationOutcome], None] = lambda outcome: None
        """Called at the old broker when the new queue delivers, or the move is undone."""
        self._machine = machine
        self._flushes = PathFlushes(machine, self._flushed)
        self._drivers: dict[str, _Driver] = {}
        self._offers: dict[str, MigrationOffer | None] = {}
        """Offers without a flush, or None for a flush without its offer."""
        self._handed_over_ms: dict[str, int] = {}
        self._started = 0
        self._wakeup_ms = 0
        """When the next driver is due, or earlier; the moves of before a restart are looked at once."""

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, namespace: str, name: str, broker: str) -> str:
        """Begin to move a subscription; returns the id of the move. Raises if it cannot move."""
        machine, config = self._machine, self._machine.config
        self.state.find(namespace, name)
        target = self.member(broker)
        self._started += 1
        migration = f"{machine.own.identity}-{machine.own.epoch}-{self._started}"
        deadline_ms = machine.now_ms + config.migration_ms_max
        offer = OfferSubscription(migration, namespace, name, target.identity, target.name, target.address, deadline_ms)
        machine.record(offer, lambda answer: self._go_on(migration))
        self._driver(migration)
        return migration

    def member(self, broker: str) -> BrokerMember:
        """Another broker of the federation by its name; raises if there is none."""
        own = self._machine.own
        found = [each for known in self._machine.members_behind.values() for each in known.values()]
        if broker == own.name:
            raise InvalidValue(f"the subscription is at broker {broker!r} already")
        for each in found:
            if each.name == broker:
                return each
        names = ", ".join(sorted(each.name for each in found)) if found else "none"
        raise InvalidValue(f"there is no broker {broker[:80]!r} in the federation; the others are: {names}")

    def received(self, session: LinkSession, frame: BrokerMessage | PathFlush) -> None:
        machine = self._machine
        if isinstance(frame, PathFlush):
            self._flushes.received(session, frame)
        elif isinstance(frame.content, BalancingContent) and self.neighbour_to(frame.source) != session.neighbour:
            pass  # nobody speaks for a broker elsewhere
        elif frame.target != machine.own.identity:
            following = self.session_to(frame.target)
            if following is not None and following is not session:
                machine.send(following, frame)
        elif isinstance(frame.content, BalancingContent):
            machine.effects.append(FrameReceived(session.connection, session.neighbour, frame))
        else:
            self._take(frame.source, frame.content)

    def matched(self, token: int) -> None:
        self._flushes.matched(token)

    def advance(self) -> None:
        """Something was received, or is durable."""
        self._flushes.advance()

    def tick(self) -> None:
        """Let time pass."""
        now_ms = self._machine.now_ms
        known = {**self.state.departures, **self.state.arrivals}
        for migration in [each for each in self._drivers if each not in known]:
            del self._drivers[migration]
        for migration in known:
            if self._driver(migration).due_ms <= now_ms:
                self._go_on(migration)
        self._wakeup_ms = min((each.due_ms for each in self._drivers.values()), default=NEVER)

    def wakeup_ms(self) -> int | None:
        return self._wakeup_ms if self.state.departures or self.state.arrivals else None

    # ── the old broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, migration: str) -> None:
        """Send what the other side needs next, and once more after a while."""
        driver, config = self._driver(migration), self._machine.config
        driver.waits_ms = min(max(config.retry_ms, 2 * driver.waits_ms), config.migration_retry_ms_max)
        driver.due_ms = self._machine.now_ms + driver.waits_ms
        self._wakeup_ms = min(self._wakeup_ms, driver.due_ms)
        driver.in_flight = 0
        departure, arrival = self.state.departures.get(migration), self.state.arrivals.get(migration)
        if departure is not None:
            self._depart(departure, driver)
        if arrival is not None:
            self._arrive(arrival, driver)

    def _depart(self, departure: Departure, driver: _Driver) -> None:
        migration = departure.migration
        if departure.is_handed_over:
            if not driver.is_opened:
                self._flushes.begin(departure.target, migration, HANDED_OVER)
            driver.numbers.clear()
            self._send_messages(departure, driver)
        elif self._is_overdue(departure):
            way = "" if self.session_to(departure.target) is not None else "; the link towards it is down"
            self._undo(departure, f"nothing brought it closer for {self._machine.config.migration_ms_max} ms{way}")
        elif len(departure.taken) > NOTED_MAX:
            self._undo(departure, f"over {NOTED_MAX} publications came before it was ready")
        else:
            self._flushes.begin(departure.target, migration, OFFERED)
            self._send(departure.target, MigrationOffer(migration, self._machine.own.name, departure.offer))

    def _send_messages(self, departure: Departure, driver: _Driver) -> None:
        """Send the next batch; when nothing is left, open the new queue, let dead letters follow, and finally end."""
        now_ms = self._machine.now_ms
        queue = self._machine.server.queues.transfers.find(departure.queue)
        if driver.in_flight:
            return
        letters = self.state.dead_letters(departure) if driver.is_opened else {}
        if not driver.numbers:
            free = [each for each in queue.messages.values() if not _is_in_flight(each)]
            if queue.is_in_order and len(free) < len(queue.messages):
                free = []  # nothing may overtake what is in flight
            order = {number: place for place, number in enumerate(queue.order.visible_order())}
            free.sort(key=lambda each: (order.get(each.number, len(order)), each.number))
            driver.numbers.extend(each.number for each in free)
            driver.numbers.extend(letters)
        batch: list[MovingMessage] = []
        size, size_max = 0, self._machine.config.batch_bytes
        while driver.numbers and len(batch) < BATCH_MESSAGES and size < size_max:
            number = driver.numbers.popleft()
            message = queue.messages.get(number, letters.get(number))
            if message is not None and not _is_in_flight(message):
                batch.append(exported(message, now_ms))
                size += len(message.body) + len(message.attributes)
        if batch:
            driver.in_flight = len(batch)
            self._send(departure.target, MigrationMessages(departure.migration, batch))
        elif not driver.is_opened:
            if not (queue.is_in_order and queue.messages):
                own = self._machine.own.identity
                taken = [(origin if origin else own, numbers) for origin, numbers in departure.taken.columns()]
                number = self._machine.server.queues.number
                self._send(departure.target, MigrationOpen(departure.migration, taken, number))
        elif not (queue.messages or letters):
            self._end(departure)

    def _end(self, departure: Departure) -> None:
        self._record(
            EndDeparture(departure.migration, self._machine.config.redirect_ms),
            lambda answer: self._send(departure.target, MigrationOver(departure.migration)),
        )

    def _undo(self, departure: Departure, reason: str) -> None:
        def undone(answer: object) -> None:
            self._send(departure.target, MigrationOver(departure.migration))
            text = f"subscription {departure.name!r} does not move to {departure.broker!r}: {reason}"
            self._machine.notice(text, is_warning=True)
            self.on_ended(_outcome(departure, False, reason=reason))

        self._record(EndDeparture(departure.migration, 0), undone)

    # ── the new broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, arrival: Arrival, driver: _Driver) -> None:
        now_ms = self._machine.now_ms
        if self.neighbour_to(arrival.source) is not None or not driver.member_ms:
            driver.member_ms = now_ms
        elif not arrival.is_open and now_ms - driver.member_ms >= ORPHANED_MS:
            self._record(EndArrival(arrival.migration))
            return
        if not arrival.is_open and not driver.is_flushed:
            self._flushes.begin(arrival.source, arrival.migration, PREPARED)
        self._send(arrival.source, MigrationQuestion(arrival.migration))

    def _offered(self, source: str, offer: MigrationOffer) -> None:
        """Prepare if the path was flushed since the old broker notes what it gets; otherwise wait for that."""
        if offer.migration in self.state.arrivals:
            self._flushes.begin(source, offer.migration, PREPARED)
        elif self._offers.get(offer.migration, offer) is None:
            del self._offers[offer.migration]
            self._prepare(source, offer)
        else:
            self._remember(offer.migration, offer)

    def _remember(self, migration: str, offer: MigrationOffer | None) -> None:
        while len(self._offers) >= OFFERS_MAX:
            del self._offers[next(iter(self._offers))]
        self._offers[migration] = offer

    def _prepare(self, source: str, offer: MigrationOffer) -> None:
        migration = offer.migration

        def prepared(answer: object) -> None:
            self._flushes.begin(source, migration, PREPARED)

        try:
            self._machine.record(PrepareArrival(migration, source, offer.broker, offer.subscription), prepared)
            self._driver(migration)
        except LavantError as error:
            self._send(source, MigrationRefused(migration, str(error)))

    def _take_messages(self, source: str, frame: MigrationMessages) -> None:
        arrival = self.state.arrivals.get(frame.migration)
        if arrival is None:
            self._send(source, MigrationUnknown(frame.migration))
            return
        numbers = [each.number for each in frame.messages]
        self._record(
            TakeMessages(frame.migration, frame.messages),
            lambda answer: self._send(source, MessagesTaken(frame.migration, numbers)),
            queue=arrival.queue,
        )

    def _open(self, source: str, frame: MigrationOpen) -> None:
        arrival, own = self.state.arrivals.get(frame.migration), self._machine.own.identity
        if arrival is None:
            self._send(source, MigrationUnknown(frame.migration))
            return
        driver = self._driver(frame.migration)
        if not (arrival.is_open or driver.is_flushed):
            driver.opening = frame
            return
        taken = [("" if origin == own else origin, numbers) for origin, numbers in frame.taken]
        self._record(
            OpenArrival(frame.migration, taken, frame.number),
            lambda answer: self._send(source, MigrationOpened(frame.migration)),
            queue=arrival.queue,
        )

    # ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, source: str, content: MigrationContent) -> None:
        departure = self.state.departures.get(content.migration)
        if departure is not None and departure.target == source:
            self._take_as_old(departure, content)
        elif isinstance(content, MigrationOffer):
            self._offered(source, content)
        elif isinstance(content, MigrationMessages):
            self._take_messages(source, content)
        elif isinstance(content, MigrationOpen):
            self._open(source, content)
        elif isinstance(content, MigrationOver):
            arrival = self.state.arrivals.get(content.migration)
            if arrival is not None and arrival.source == source:
                self._record(EndArrival(content.migration), queue=arrival.queue)
        elif isinstance(content, MigrationQuestion):
            self._send(source, MigrationOver(content.migration))

    def _take_as_old(self, departure: Departure, content: MigrationContent) -> None:
        driver = self._driver(departure.migration)
        if isinstance(content, MigrationRefused) and not departure.is_handed_over:
            self._undo(departure, content.reason)
        elif isinstance(content, MigrationUnknown):
            self._flushes.begin(departure.target, departure.migration, OFFERED)
            self._send(departure.target, MigrationOffer(departure.migration, self._machine.own.name, departure.offer))
        elif isinstance(content, MessagesTaken) and departure.is_handed_over:
            driver.waits_ms = 0
            self._record(
                ForgetMessages(departure.migration, content.numbers), lambda answer: self._continue(departure.migration)
            )
        elif isinstance(content, MigrationOpened) and departure.is_handed_over and not driver.is_opened:
            driver.is_opened = True
            driver.waits_ms = 0
            handed_over_ms = self._handed_over_ms.pop(departure.migration, self._machine.now_ms)
            self.on_ended(_outcome(departure, True, pause_ms=self._machine.now_ms - handed_over_ms))
            self._continue(departure.migration)

    def _continue(self, migration: str) -> None:
        departure, driver = self.state.departures.get(migration), self._driver(migration)
        if departure is not None and departure.is_handed_over:
            driver.in_flight = 0
            self._send_messages(departure, driver)

    def _flushed(self, source: str, migration: str, step: str) -> None:
        """A flush of the path from the other broker has arrived."""
        departure, arrival = self.state.departures.get(migration), self.state.arrivals.get(migration)
        if step == PREPARED:
            if departure is not None and departure.target == source and not departure.is_handed_over:
                self._hand_over(departure)
        elif arrival is None:
            offer = self._offers.pop(migration, None)
            if offer is None:
                self._remember(migration, None)
            else:
                self._prepare(source, offer)
        elif step == HANDED_OVER and arrival.source == source:
            driver = self._driver(migration)
            driver.is_flushed = True
            if driver.opening is not None:
                self._open(source, driver.opening)

    def _hand_over(self, departure: Departure) -> None:
        migration, driver = departure.migration, self._driver(departure.migration)
        self._handed_over_ms[migration] = self._machine.now_ms
        driver.waits_ms = 0
        self._record(HandOverSubscription(migration), lambda answer: self._go_on(migration), queue=departure.queue)

    def _is_overdue(self, departure: Departure) -> bool:
        """Whether a move has to be undone. A broker with more publications than it can match needs long to work off
        those before a flush, and is the one that has to get rid of subscriptions: it has as long as it gets on.
        """
        now_ms, within_ms = self._machine.now_ms, self._machine.config.migration_ms_max
        if now_ms < departure.deadline_ms:
            return False
        is_working_off = self._flushes.is_working_off(departure.migration, within_ms=within_ms)
        return not is_working_off or now_ms >= departure.deadline_ms + FLUSH_MS_MAX

    # ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _driver(self, migration: str) -> _Driver:
        driver = self._drivers.get(migration)
        if driver is None:
            driver = self._drivers[migration] = _Driver(self._machine.now_ms + self._machine.config.retry_ms)
            self._wakeup_ms = min(self._wakeup_ms, driver.due_ms)
        return driver

    def session_to(self, identity: str) -> LinkSession | None:
        """The open link towards a broker."""
        name, sessions = self.neighbour_to(identity), self._machine.sessions.values()
        return next((each for each in sessions if each.is_up and each.neighbour == name), None)

    def neighbour_to(self, identity: str) -> str | None:
        """The neighbour behind which a broker is; None if it is not in the federation."""
        for name, members in self._machine.members_behind.items():
            if any(each.identity == identity for each in members.values()):
                return name
        return None

    def _send(self, target: str, content: MigrationContent) -> None:
        session = self.session_to(target)
        if session is not None:
            self._machine.send(session, BrokerMessage(self._machine.own.identity, target, content))

    def _record(self, command: Command, then: Callable[[Any], None] | None = None, *, queue: str = "") -> None:
        """Apply a step; if it cannot be applied now, on a full disk, say, it is repeated later."""
        try:
            self._machine.record(command, then, queue=queue)
        except LavantError as error:
            self._machine.notice(f"a step of a moving subscription has to wait: {error}")


def _is_in_flight(message: Message) -> bool:
    return bool(message.visible_ms and message.lease)


def _outcome(departure: Departure, is_complete: bool, *, reason: str = "", pause_ms: int = 0) -> MigrationOutcome:
    return MigrationOutcome(
        departure.migration,
        departure.namespace,
        departure.name,
        departure.broker,
        departure.address,
        is_complete,
        reason,
        pause_ms,
    )
