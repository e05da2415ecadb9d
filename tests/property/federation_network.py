"""Brokers that are connected in memory: frames arrive in order, disks are quick, and a connection can be cut."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import msgspec

from lavant.broker.federation.effects import CloseLink, LinkNotice, SendFrame
from lavant.broker.federation.frames import LinkFrame, LinkRefused, decode_link_frame
from lavant.broker.federation.session import FederationConfig
from lavant.broker.federation.state import LinkLimits
from lavant.broker.machine.effects import Record, Reply
from lavant.broker.machine.replay import replay
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.queues import Receive, Received
from lavant.simulation.federation.node import BrokerNode, NodeEffect

encode = msgspec.msgpack.Encoder().encode


class End(msgspec.Struct, frozen=True):
    """One end of a connection."""

    connection: int
    broker: str


class NetworkBroker:
    """A broker, its journal and its connections."""

    def __init__(self, name: str, config: FederationConfig) -> None:
        self.name = name
        self.config = config
        self.records: list[bytes] = []
        self.durable = 0
        self.is_disk_stopped = False
        self.node = self._start(BrokerState())

    def _start(self, state: BrokerState) -> BrokerNode:
        return BrokerNode(state, self.config, position=len(self.records))

    def restart(self, *, loses: int = 0) -> None:
        """Crash, and lose some records that were not durable."""
        self.records = self.records[: max(self.durable, len(self.records) - loses)]
        self.durable = len(self.records)
        self.node = self._start(replay(None, self.records))


class Network:
    """All brokers, and the frames on their way."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.brokers: dict[str, NetworkBroker] = {}
        self.notices: list[str] = []
        self.refusals: list[LinkRefused] = []
        self.answers: dict[int, Answer] = {}
        self.frames = 0
        self._requests = 0
        self._connections = 0
        self._ends: dict[End, End] = {}
        self._on_way: deque[tuple[End, LinkFrame | None]] = deque()

    def add(self, name: str, *, identity: str = "", limits: LinkLimits | None = None, **options: Any) -> NetworkBroker:
        config = FederationConfig(
            name=name,
            identity=identity if identity else f"id-{name}",
            limits=LinkLimits() if limits is None else limits,
            **options,
        )
        broker = self.brokers[name] = NetworkBroker(name, config)
        self._perform(broker, broker.node.open(self.now_ms))
        return broker

    def join(self, dialler: str, acceptor: str) -> None:
        self._connections += 1
        here, there = End(self._connections, dialler), End(self._connections, acceptor)
        self._ends[here], self._ends[there] = there, here
        self._perform(self.brokers[acceptor], self.brokers[acceptor].node.accepted(there, self.now_ms))
        self._perform(self.brokers[dialler], self.brokers[dialler].node.dialled(here, self.now_ms))

    def cut(self, one: str, other: str) -> None:
        """Cut the connections between two brokers; frames on their way are lost."""
        for here in [end for end, there in self._ends.items() if (end.broker, there.broker) == (one, other)]:
            self._hang_up(here)

    def restart(self, name: str, *, loses: int = 0) -> None:
        broker = self.brokers[name]
        for end in [end for end in self._ends if end.broker == name]:
            self._hang_up(end)
        broker.restart(loses=loses)
        self._perform(broker, broker.node.open(self.now_ms))

    def ask(self, name: str, request: Any) -> int:
        """Send a request; its answer will be in `answers`."""
        self._requests += 1
        broker = self.brokers[name]
        self._perform(broker, broker.node.request("client", self._requests, request, None, self.now_ms))
        return self._requests

    def request(self, name: str, request: Any) -> Any:
        """Send a request, and return the answer when all is quiet."""
        number = self.ask(name, request)
        self.settle()
        return self.answers[number]

    def links(self) -> set[frozenset[str]]:
        """All pairs of brokers of which one holds the other to be its neighbour."""
        brokers = self.brokers.values()
        return {frozenset((each.name, name)) for each in brokers for name in each.node.machine.state.neighbours}

    def step(self, source: random.Random | None = None) -> bool:
        """Deliver the next frame, or that of a random connection; False if there is none."""
        if not self._on_way:
            return False
        place = 0
        if source is not None:  # each connection keeps its order
            first = {to: place for place, (to, _) in reversed(list(enumerate(self._on_way)))}
            place = source.choice(sorted(first.values()))
        to, frame = self._on_way[place]
        del self._on_way[place]
        if to not in self._ends:
            return True
        broker = self.brokers[to.broker]
        if frame is None:
            del self._ends[to]
            self._perform(broker, broker.node.closed(to, self.now_ms))
            return True
        self.frames += 1
        if isinstance(frame, LinkRefused):
            self.refusals.append(frame)
        self._perform(broker, broker.node.frame(to, frame, self.now_ms))
        return True

    def settle(self, steps_max: int = 200_000) -> None:
        for _ in range(steps_max):
            if self.step():
                continue
            deriving = [each for each in self.brokers.values() if each.node.machine.is_deriving]
            for broker in deriving:
                self._perform(broker, broker.node.tick(self.now_ms))
            if not deriving and not self._is_gathering():
                return
            if not deriving:
                self.pass_time(1)
        raise AssertionError("the network does not come to rest")

    def _is_gathering(self) -> bool:
        """Whether publications wait for others to be sent with."""
        sessions = [each for broker in self.brokers.values() for each in broker.node.machine.sessions.values()]
        return any(each.is_up and each.gathers_until_ms is not None for each in sessions)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for broker in self.brokers.values():
            self._perform(broker, broker.node.tick(self.now_ms))

    def received(self, name: str, queue: str) -> list[dict[str, Any]]:
        """Take all messages out of a queue."""
        taken: list[dict[str, Any]] = []
        while True:
            answer = self.request(name, Receive(queue, 10, 10_000_000))
            assert isinstance(answer, Received), answer
            if not answer.deliveries:
                return taken
            taken += [msgspec.json.decode(each.body) for each in answer.deliveries]

    def perform(self, name: str, effects: list[NodeEffect]) -> None:
        """Perform what a broker's machine returned to a stimulus of the test."""
        self._perform(self.brokers[name], effects)

    def resume_disk(self, name: str) -> None:
        broker = self.brokers[name]
        broker.is_disk_stopped = False
        self._perform(broker, [])

    def _hang_up(self, end: End) -> None:
        there = self._ends.pop(end, None)
        broker = self.brokers[end.broker]
        self._perform(broker, broker.node.closed(end, self.now_ms))
        if there in self._ends:
            self._on_way.append((there, None))

    def _perform(self, broker: NetworkBroker, effects: list[NodeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                broker.records.append(effect.data)
                assert effect.position == len(broker.records)
            elif isinstance(effect, Reply):
                self.answers[effect.number] = effect.answer
            elif isinstance(effect, SendFrame):
                there = self._ends.get(effect.connection)
                if there is not None:
                    self._on_way.append((there, decode_link_frame(encode(effect.frame))))
            elif isinstance(effect, CloseLink):
                self._hang_up(effect.connection)
            elif isinstance(effect, LinkNotice):
                self.notices.append(effect.text)
        if not broker.is_disk_stopped and broker.durable < len(broker.records):
            broker.durable = len(broker.records)
            self._perform(broker, broker.node.committed(broker.durable, self.now_ms))
