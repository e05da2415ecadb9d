"""Publications that come from neighbours: each is relayed once, and confirmed when that is durable.

    LinkPublications ──► RelayPublications ──► matched, one Deliver ──► relayed ──► LinkAcknowledged
                              ▲                                            │
                              └── a while later ── held ◄── refused ───────┘

A publication that cannot be delivered now, because a queue is full, say, is held and tried again. It is not confirmed,
so in the end the window of the link is used up, and its publishers are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from lavant.broker.federation.columns import relayed_from, routed_columns
from lavant.broker.federation.effects import LinkNotice, RelayPublications
from lavant.broker.federation.frames import LinkPublications
from lavant.broker.federation.link_queue import check_columns
from lavant.broker.federation.numbers import ReceivedNumbers
from lavant.broker.federation.session import HeldRelay, LinkSession
from lavant.broker.federation.state import Neighbour
from lavant.broker.protocol.queues import FanOut, Refused
from lavant.broker.protocol.subscriptions import Deliver
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.broker.federation.machine import FederationMachine

HOPS_MAX = 250
"""A publication that has crossed more links goes in circles. They are counted in 8 bits."""
HOPELESS = ("InvalidValue", "LimitExceeded")
"""Refusals that would come again and again."""


class _Relay(msgspec.Struct):
    """Publications of a neighbour that are being matched."""

    link: str
    batch: LinkPublications
    indexes: list[int]
    pause_ms: int
    """For which they were held before; 0 the first time."""


class LinkRelays:
    """The publications that come to one broker."""

    def __init__(self, machine: FederationMachine) -> None:
        self.hops_max: dict[str, int] = {}
        """By neighbour: the most links that one of its publications has crossed."""
        self._machine = machine
        self._received: dict[str, ReceivedNumbers] = {}
        """By link: the numbers that were received and are durable."""
        self._relays: dict[int, _Relay] = {}
        self._number = 0
        self._in_progress: dict[str, set[int]] = {}
        """By link: numbers that are being relayed, or held."""

    def follow(self, neighbours: Collection[Neighbour]) -> None:
        """These are the neighbours now; what is received from new ones is durable."""
        received: dict[str, ReceivedNumbers] = {}
        for each in neighbours:
            numbers = self._received.get(each.link)
            if numbers is None:
                numbers = ReceivedNumbers(each.received.floor, each.received.above())
            received[each.link] = numbers
            self._in_progress.setdefault(each.link, set())
        self._received = received
        # A link that was removed is forgotten when its last relay is answered.
        self._in_progress = {link: each for link, each in self._in_progress.items() if each or link in received}
        names = {each.name for each in neighbours}
        self.hops_max = {name: most for name, most in self.hops_max.items() if name in names}

    def durable(self, link: str) -> int:
        """All publications of the link up to this number are durable."""
        return self._received[link].floor

    def durable_of(self, link: str) -> int | None:
        """The same; None if the link was removed."""
        return self._received[link].floor if link in self._received else None

    @property
    def last(self) -> int:
        """The number of the last relay."""
        return self._number

    def is_done(self, number: int) -> bool:
        """Whether all relays up to this one were answered."""
        return not self._relays or next(iter(self._relays)) > number

    def take(self, session: LinkSession, batch: LinkPublications) -> None:
        """Publications came. Those that came before, over an earlier connection, are left out."""
        check_columns(batch)
        if batch.first != session.taken + 1:
            raise InvalidValue(f"publication {batch.first} came after {session.taken}; numbers have no gaps")
        session.taken = batch.last
        neighbour = self._machine.state.find(session.neighbour, session.link)
        received, in_progress = neighbour.received, self._in_progress[session.link]
        numbers = range(batch.first, batch.last + 1)
        new = [i for i, number in enumerate(numbers) if number not in received and number not in in_progress]
        if not new:
            return
        hops = np.frombuffer(batch.hops, np.uint8) + np.uint8(1)
        in_progress.update(batch.first + index for index in new)
        most = int(hops.max())
        self.hops_max[session.neighbour] = max(self.hops_max.get(session.neighbour, 0), most)
        if most > HOPS_MAX:
            why = f"it has crossed {most} links, and at most {HOPS_MAX} may be between two brokers"
            self._machine.notice(f"a publication from {session.neighbour!r} was dropped: {why}", is_warning=True)
        self._relay(session, msgspec.structs.replace(batch, hops=hops.tobytes()), new)

    def answered(self, connection: Hashable, number: int, entries: list[str | Refused]) -> None:
        """A relay was answered: what was accepted is durable."""
        relay = self._relays.pop(number)
        numbers = [relay.batch.first + index for index in relay.indexes]
        done = [number for number, entry in zip(numbers, entries, strict=True) if isinstance(entry, str)]
        self._finish(relay.link, done)
        if len(done) == len(numbers):
            return
        session = self._machine.session_of(relay.link)
        if session is None:  # the neighbour will send them again
            self._in_progress[relay.link].difference_update(numbers)
            return
        copies, held = self._copies(relay.batch), list[int]()
        for index, entry in zip(relay.indexes, entries, strict=True):
            if isinstance(entry, Refused) and copies[index]:  # it came over another link while it was matched
                self._drop(session, relay.batch, [index])
            elif isinstance(entry, Refused) and entry.code in HOPELESS:
                text = f"a publication from {session.neighbour!r} was dropped: {entry.reason}"
                self._machine.effects.append(LinkNotice(text, True))
                self._drop(session, relay.batch, [index])
            elif isinstance(entry, Refused):
                held.append(index)
                session.blocked = entry.reason
        if held:
            config = self._machine.config
            pause_ms = min(max(config.retry_ms, 2 * relay.pause_ms), config.retry_ms_max)
            session.hold(HeldRelay(relay.batch, held, self._machine.now_ms + pause_ms, pause_ms))

    def retry(self, session: LinkSession) -> None:
        """Relay what was held once more."""
        due = session.take_due(self._machine.now_ms)
        for held in due:
            self._relay(session, held.batch, held.indexes, held.pause_ms)
        if due and not session.held:
            session.blocked = ""

    def release(self, session: LinkSession) -> None:
        """The session is over: what it held will be sent again."""
        for held in session.take_all():
            self._in_progress[session.link].difference_update(held.numbers)

    def _relay(self, session: LinkSession, batch: LinkPublications, indexes: list[int], pause_ms: int = 0) -> None:
        copies = self._copies(batch)
        wanted = [index for index in indexes if not copies[index]]
        if len(wanted) < len(indexes):
            self._drop(session, batch, [index for index in indexes if copies[index]])
        if wanted:
            self._number += 1
            self._relays[self._number] = _Relay(session.link, batch, wanted, pause_ms)
            self._machine.effects.append(
                RelayPublications(session.connection, self._number, session.neighbour, session.link, batch, wanted)
            )

    def _copies(self, batch: LinkPublications) -> NDArray[np.bool_]:
        """Which publications came before over another link, were published here, or go in circles."""
        numbers = np.frombuffer(batch.origin_numbers, "<u8")
        origin_of = np.frombuffer(batch.origin_of, "<u2")
        copies = np.frombuffer(batch.hops, np.uint8) > HOPS_MAX
        for index, origin in enumerate(batch.origins):
            mine = origin_of == index
            if origin == self._machine.own.identity:
                copies |= mine
            else:
                copies[mine] |= self._machine.state.origins.seen(origin, numbers[mine])
        return copies

    def _drop(self, session: LinkSession, batch: LinkPublications, indexes: list[int]) -> None:
        """Record that these were received, without delivering them."""
        numbers, link = [batch.first + index for index in indexes], session.link
        routed = routed_columns(batch.namespace, relayed_from(batch, indexes, link))
        deliver = Deliver(FanOut([b""] * len(indexes), b"", b"", b""), routed=routed)
        self._machine.record(deliver, lambda answer: self._finish(link, numbers), grows=False)

    def _finish(self, link: str, numbers: list[int]) -> None:
        self._in_progress[link].difference_update(numbers)
        if link in self._received:
            self._received[link].add(numbers)
