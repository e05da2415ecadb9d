"""Brokers that balance: real federation machines and balancers over links in memory, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.property.federation_network import End, Network, NetworkBroker

from lavant.broker.federation.effects import FrameReceived, SendFrame
from lavant.broker.federation.frames import BrokerMessage, LinkFrame
from lavant.broker.protocol.federation import MoveSubscription, SubscriptionMigrated
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish
from lavant.broker.subscriptions.parsing import PLAIN, ParsedPublication
from lavant.service.federation.balancing.balancer import FederationBalancer
from lavant.service.federation.balancing.load_meter import LoadMeter
from lavant.service.federation.balancing.settings import BalancingSettings, BrokerCapacity
from lavant.service.federation.settings import FederationSettings


class NetworkLinks:
    """What a balancer needs of the links of its broker."""

    def __init__(self, network: BalancedNetwork, name: str) -> None:
        self.settings = FederationSettings(name=name)
        self.clock = SimpleNamespace(now_ms=lambda: network.now_ms)
        self.ingest = SimpleNamespace(published=0, waiting=0, probe=None)
        self._network, self._broker = network, network.brokers[name]
        self._ended: dict[str, asyncio.Future[Any]] = {}
        self.machine.migrations.on_ended = lambda outcome: self._ended.pop(outcome.name).set_result(
            SubscriptionMigrated(outcome.name, outcome.broker, "", 0)
            if outcome.is_complete
            else Refused("SubscriptionMoving", outcome.reason)
        )
        self.service: Any = SimpleNamespace(
            ingest=self.ingest, server=self._broker.node, loop=asyncio.get_running_loop(), execute=self._execute
        )

    @property
    def machine(self) -> Any:
        return self._broker.node.machine

    def connection_to(self, neighbour: str) -> Any:
        end = self._network.end(self._broker.name, neighbour)
        return None if end is None else SimpleNamespace(send=lambda frame: self._network.send(end, frame))

    async def _execute(self, request: MoveSubscription) -> Any:
        self._ended[request.name] = ended = asyncio.get_running_loop().create_future()
        self._network.move(self._broker, request)
        return await ended


class BalancedNetwork(Network):
    """Use it in an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.balancers: dict[str, FederationBalancer] = {}
        self.lost: set[str] = set()
        """Brokers that get no balancing messages."""

    def balance(self, name: str, *, is_on: bool = True, rate: float = 1000.0, bandwidth: float = 10_000.0) -> None:
        """Start the balancer of a broker."""
        capacity = BrokerCapacity(bandwidth_bytes_per_s=bandwidth, matching_rate_per_s=rate)
        links: Any = NetworkLinks(self, name)
        balancer = FederationBalancer(links, BalancingSettings(is_on=is_on, capacity=capacity))
        balancer.meter = LoadMeter(links.service, capacity, balancer._failed, lambda: self.now_ms / 1000, lambda: 0.0)
        self.balancers[name] = balancer

    def end(self, broker: str, neighbour: str) -> End | None:
        found = (end for end, there in self._ends.items() if (end.broker, there.broker) == (broker, neighbour))
        return next(found, None)

    def send(self, end: End, frame: LinkFrame) -> None:
        self._perform(self.brokers[end.broker], [SendFrame(end, frame)])

    def move(self, broker: NetworkBroker, request: MoveSubscription) -> None:
        self._perform(broker, broker.node.move(request.namespace, request.name, request.broker, self.now_ms))

    def publish(self, origin: str, content: dict[str, Any]) -> None:
        """Publish, and count it at each broker that it reaches, as the ingest queue would."""
        self.request(origin, Publish([msgspec.json.encode(content)]))
        for name, balancer in self.balancers.items():
            part = self.brokers[name].node._matcher.match("", [content])
            if name == origin or part.wanted.any():
                balancer.meter.matched(1, 0.001)
                balancer.meter.fanned_out("", [ParsedPublication("id", PLAIN, content, b"x" * 100)], part)
                balancer._links.service.ingest.published += 1

    async def second(self) -> None:
        """Let a second pass everywhere."""
        self.pass_time(1000)
        self.settle()
        for balancer in self.balancers.values():
            await balancer.measure()
            self.settle()
        for _ in range(5):  # tasks that move subscriptions
            await asyncio.sleep(0)
            self.settle()

    def _perform(self, broker: NetworkBroker, effects: list[Any]) -> None:
        super()._perform(broker, [each for each in effects if not isinstance(each, FrameReceived)])
        for effect in effects:
            if isinstance(effect, FrameReceived):
                assert isinstance(effect.frame, BrokerMessage)
                if broker.name in self.balancers and broker.name not in self.lost:
                    self.balancers[broker.name].received(effect.frame)
