"""A broker of a federation on a simulated host: the real broker, journal and links, over simulated connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from lavant.broker.federation.effects import CloseLink, FrameReceived, LinkNotice, SendFrame
from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.queues.timers import earliest
from lavant.core.errors import LavantError
from lavant.simulation.federation.move_steps import MoveStep
from lavant.simulation.federation.node import BrokerNode
from lavant.simulation.federation.transport import (
    ConnectionId,
    LinkSegment,
    SegmentAck,
    SegmentReset,
    SimulatedConnection,
)
from lavant.simulation.kernel import Arrived, Effect, Note, SendPacket, Stimulus, TimerDue, WorkRequested
from lavant.simulation.queues.server import ServerMachine

DIAL_MS = 300


class AskedByClient(msgspec.Struct, frozen=True):
    """A request of a client at this broker."""

    number: int
    request: Request


class AskedToMove(msgspec.Struct, frozen=True):
    """An operator moves a subscription to another broker."""

    name: str
    broker: str


class ClientAnswered(msgspec.Struct, frozen=True):
    """For the oracle: the answer to a client."""

    number: int
    answer: Answer


class FederatedServer(ServerMachine):
    """One start of a broker. `joins` are the names of the hosts that it dials, now."""

    def __init__(self, *arguments: Any, joins: Callable[[], list[str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert isinstance(self.server, BrokerNode)
        self.node = self.server
        self._joins = joins
        self._connections: dict[ConnectionId, SimulatedConnection] = {}
        self._dialled = 0
        self._dial_ms = 0

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        local_ms = now_ms + self._ahead_ms
        effects: list[Effect] = []
        match stimulus:
            case Arrived(source=source, payload=LinkSegment() as segment):
                effects = super().handle(TimerDue(), now_ms) if not self._is_open else []
                effects += self._segment(source, segment, local_ms)
            case Arrived(payload=SegmentAck(connection=id, number=number)):
                if id in self._connections:
                    self._connections[id].acknowledged(number, local_ms)
            case Arrived(payload=SegmentReset(connection=id)):
                effects = self._lost(id, local_ms)
            case WorkRequested(value=AskedByClient(number=number, request=request)):
                effects = super().handle(TimerDue(), now_ms) if not self._is_open else []
                effects += self._perform(self.node.request(self, number, request, None, local_ms), local_ms)
            case WorkRequested(value=AskedToMove(name=name, broker=broker)):
                effects = super().handle(TimerDue(), now_ms) if not self._is_open else []
                with suppress(LavantError):  # it moves already, or the brokers do not know each other yet
                    effects += self._perform(self.node.move("", name, broker, local_ms), local_ms)
            case _:
                effects = super().handle(stimulus, now_ms)
        if self._is_open:
            effects += self._keep_connected(local_ms)
            effects += self._keep_house(local_ms)
        return effects

    def wakeup_ms(self) -> int | None:
        times = [each.wakeup_ms() for each in self._connections.values()]
        own_ms = earliest(*times, self._dial_ms)
        assert own_ms is not None
        return earliest(super().wakeup_ms(), own_ms - self._ahead_ms)

    def _segment(self, source: str, segment: LinkSegment, now_ms: int) -> list[Effect]:
        connection = self._connections.get(segment.connection)
        effects: list[Effect] = []
        if connection is None:
            if segment.connection.dialler != source or segment.number != 1:
                return [SendPacket(source, SegmentReset(segment.connection))]
            connection = self._connections[segment.connection] = SimulatedConnection(segment.connection, source, now_ms)
            effects += self._perform(self.node.accepted(connection.id, now_ms), now_ms)
        frames, ack = connection.arrived(segment)
        effects.append(SendPacket(source, ack))
        for frame in frames:
            effects += self._perform(self.node.frame(connection.id, frame, now_ms), now_ms)
        return effects

    def _keep_connected(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for connection in list(self._connections.values()):
            if connection.is_lost(now_ms):
                effects.append(SendPacket(connection.peer, SegmentReset(connection.id)))
                effects += self._lost(connection.id, now_ms)
            else:
                effects += [SendPacket(connection.peer, segment) for segment in connection.due(now_ms)]
        if now_ms >= self._dial_ms:
            self._dial_ms = now_ms + DIAL_MS
            for peer in self._joins():
                if all(each.peer != peer for each in self._connections.values()):
                    self._dialled += 1
                    id = ConnectionId(self._host.name, self._start, self._dialled)
                    self._connections[id] = SimulatedConnection(id, peer, now_ms)
                    effects += self._perform(self.node.dialled(id, now_ms), now_ms)
        return effects

    def _lost(self, id: ConnectionId, now_ms: int) -> list[Effect]:
        if self._connections.pop(id, None) is None:
            return []
        return self._perform(self.node.closed(id, now_ms), now_ms)

    def _perform(self, effects: Sequence[Any], now_ms: int) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SendFrame):
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    done.append(SendPacket(connection.peer, connection.send(effect.frame, now_ms)))
            elif isinstance(effect, CloseLink):
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    done.append(SendPacket(connection.peer, SegmentReset(connection.id)))
                    done += self._lost(connection.id, now_ms)
            elif isinstance(effect, Reply) and effect.client is self:
                done.append(Note(ClientAnswered(effect.number, effect.answer)))
            elif isinstance(effect, LinkNotice | MoveStep):
                done.append(Note(effect))
            elif not isinstance(effect, FrameReceived):
                done += super()._perform([effect], now_ms)
        return done
