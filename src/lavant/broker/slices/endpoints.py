"""Source and sink, where the flow of slices begins and ends: the source numbers client requests, the sink takes each
notification once.

They are not slices and do not move, but their links work like all others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lavant.broker.slices import wire
from lavant.broker.slices.layout import SINK
from lavant.broker.slices.links import Inbox, Item, Outlet
from lavant.broker.slices.migration.messages import Ack, Data, DataReceived, LinkTimerDue, Route, Routed, Transmit
from lavant.broker.slices.migration.route_announcements import SliceRoutes
from lavant.broker.slices.values import SliceNotification, SlicePublish, SliceSubscribe, SliceUnsubscribe
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId


class Offer(msgspec.Struct, frozen=True, eq=False):
    """Input for an access slice. Check `room` first."""

    to: SliceId
    content: SliceSubscribe | SliceUnsubscribe | SlicePublish


class NotifiedOnce(msgspec.Struct, frozen=True, eq=False):
    """A notification that is not a repetition."""

    notification: SliceNotification


class SliceSource:
    """Sends client requests in order, and repeats them until they are acknowledged."""

    def __init__(self, id: SliceId, manager: HostId, placement: Mapping[SliceId, HostId]) -> None:
        self.id = id
        self._manager = manager
        self._routes = SliceRoutes(placement)
        self._outlet = Outlet()
        self._sent: dict[SliceId, int] = {}
        self._wakeup_ms: int | None = None

    @property
    def room(self) -> int:
        """How many more may be offered now; at 0, clients must wait."""
        return self._outlet.room

    def handle(self, stimulus: DataReceived | Offer | LinkTimerDue, now_ms: int) -> list[Transmit]:
        match stimulus:
            case Offer(to=to, content=content):
                sequence = self._sent[to] = self._sent.get(to, 0) + 1
                item = Item(to, sequence, wire.encode(content))
                self._outlet.keep(item, now_ms)
                self._wakeup_ms = self._outlet.wakeup_ms()
                return self._transmit(item)
            case DataReceived(message=Ack(to=to, sequence=sequence)):
                self._outlet.acknowledge(to, sequence, now_ms)
                self._wakeup_ms = self._outlet.wakeup_ms()
                return []
            case DataReceived(message=Route() as route):
                self._routes.take(route)
                sent = self._sent.get(route.slice, 0)
                return [Transmit(self._manager, Routed(route.version, route.slice, {self.id: sent} if sent else {}))]
            case LinkTimerDue():
                transmits = [transmit for item in self._outlet.resend(now_ms) for transmit in self._transmit(item)]
                self._wakeup_ms = self._outlet.wakeup_ms()
                return transmits
        raise InvalidValue(f"a source does not take {type(stimulus).__name__}")

    def wakeup_ms(self) -> int | None:
        return self._wakeup_ms

    def _transmit(self, item: Item) -> list[Transmit]:
        data = Data(self.id, item.to, item.sequence, item.content)
        return [Transmit(host, data) for host in self._routes.hosts(item.to)]


class Sink:
    """Takes the output of exit slices: each notification once, those of one exit slice in order."""

    def __init__(self) -> None:
        self._inbox: Inbox[bytes] = Inbox()

    def handle(self, stimulus: DataReceived, now_ms: int) -> list[Transmit | NotifiedOnce]:
        data = stimulus.message
        if not isinstance(data, Data):
            raise InvalidValue(f"a sink does not take {type(data).__name__}")
        self._inbox.put(data.upstream, data.sequence, data.content)
        effects: list[Transmit | NotifiedOnce] = []
        while (item := self._inbox.take(data.upstream)) is not None:
            notification = wire.decode(item[1])
            assert isinstance(notification, SliceNotification), "exit slices send nothing else"
            effects.append(NotifiedOnce(notification))
        sequence = self._inbox.vector.get(data.upstream, 0)
        return [*effects, Transmit(stimulus.source, Ack(data.upstream, SINK, sequence))]

    def wakeup_ms(self) -> int | None:
        return None
