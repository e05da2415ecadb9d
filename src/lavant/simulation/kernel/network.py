"""Links between hosts: one per direction, with its delay, loss and random stream.

A packet does not overtake another unless the link allows it: `reordering` is the probability that a packet is held back
while later ones pass. Packets are lost when their link is cut at sending or arrival, and when their receiver has
crashed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from lavant.core.errors import InvalidValue
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.distributions import Distribution, Exponential, require_probability
from lavant.simulation.kernel.trace import shown


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are about those of a data centre, without faults."""

    delay_us: Distribution = Exponential(100, least_us=150)
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    held_back_us: Distribution = Exponential(20_000)
    """Additional delay of a packet that is held back or duplicated."""
    outlives_crash: bool = False
    """Whether a packet in flight when its receiver crashes reaches the next incarnation."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplication", "reordering"):
            require_probability(name, getattr(self, name))


class Receiver(Protocol):
    """A host, as the network sees it."""

    incarnation: int

    def receive(self, source: str, payload: Any, /) -> bool:
        """Take a packet, if it is up."""
        ...


class SimulatedLink:
    """One direction between two hosts."""

    def __init__(self, network: SimulatedNetwork, source: str, destination: str, config: LinkConfig) -> None:
        self.config = config
        self.cuts = 0
        """Number of partitions that cut it."""
        self._network = network
        self._stage = network.stage
        self._source = source
        self._destination = destination
        self._receiver = network.receiver(destination)
        self._random = network.stage.randomness.stream(f"link/{source}/{destination}")
        self._last_us = 0

    def send(self, payload: Any) -> None:
        stage, config, random = self._stage, self.config, self._random
        stage.figures["packets sent"] += 1
        if self.cuts:
            self._drop("cut off", payload)
            return
        loss = config.loss + self._network.loss_extra
        if loss and random.random() < loss:
            self._drop("lost", payload)
            return
        arrival_us = stage.calendar.now_us + config.delay_us.draw_us(random) * self._network.slowness
        if config.reordering and random.random() < config.reordering:
            stage.figures["packets held back"] += 1
            arrival_us += config.held_back_us.draw_us(random)
        else:
            arrival_us = self._last_us = max(arrival_us, self._last_us)
        self._enter(arrival_us, payload)
        if config.duplication and random.random() < config.duplication:
            stage.figures["packets duplicated"] += 1
            self._enter(arrival_us + config.held_back_us.draw_us(random), payload)

    def _enter(self, arrival_us: int, payload: Any) -> None:
        stage = self._stage
        if stage.is_traced:
            delay_us = arrival_us - stage.calendar.now_us
            stage.say(f"{self._source} > {self._destination} {shown(payload)} +{delay_us}")
        stage.calendar.enter(arrival_us, self._arrive, payload, self._receiver.incarnation)

    def _arrive(self, payload: Any, incarnation: int) -> None:
        receiver = self._receiver
        if self.cuts:
            self._drop("cut off", payload)
        elif incarnation != receiver.incarnation and not self.config.outlives_crash:
            self._drop("for the one before", payload)
        elif not receiver.receive(self._source, payload):
            self._drop("nobody there", payload)

    def _drop(self, why: str, payload: Any) -> None:
        self._stage.figures["packets dropped"] += 1
        if self._stage.is_traced:
            self._stage.say(f"{self._source} x {self._destination} {shown(payload)} {why}")


class SimulatedNetwork:
    """All links. A link is created with its first packet; `configure` sets those between two hosts."""

    def __init__(self, stage: SimulationContext) -> None:
        self.stage = stage
        self.config = LinkConfig()
        """Of links without a configuration; set it before the first packet."""
        self.loss_extra = 0.0
        """A storm: this loss probability is added to each link's own."""
        self.slowness = 1
        """Factor on all delays."""
        self._receivers: dict[str, Receiver] = {}
        self._configs: dict[tuple[str, str], LinkConfig] = {}
        self._links: dict[tuple[str, str], SimulatedLink] = {}

    def attach(self, name: str, receiver: Receiver) -> None:
        self._receivers[name] = receiver

    def receiver(self, name: str) -> Receiver:
        receiver = self._receivers.get(name)
        if receiver is None:
            raise InvalidValue(f"no host is called {name!r}; there are {', '.join(sorted(self._receivers))}")
        return receiver

    def configure(self, one: str, other: str, config: LinkConfig) -> None:
        """Set both directions between two hosts."""
        for pair in ((one, other), (other, one)):
            self._configs[pair] = config
            if pair in self._links:
                self._links[pair].config = config

    def send(self, source: str, destination: str, payload: Any) -> None:
        link = self._links.get((source, destination))
        if link is None:
            link = self.link(source, destination)
        link.send(payload)

    def link(self, source: str, destination: str) -> SimulatedLink:
        pair = (source, destination)
        if pair not in self._links:
            self._links[pair] = SimulatedLink(self, source, destination, self._configs.get(pair, self.config))
        return self._links[pair]

    def cut(self, pairs: Iterable[tuple[str, str]]) -> Callable[[], None]:
        """Cut links, each as (source, destination), and return a function that heals them; cuts may overlap."""
        links = [self.link(source, destination) for source, destination in pairs]
        for link in links:
            link.cuts += 1

        def heal() -> None:
            for link in links:
                link.cuts -= 1

        return heal

    def partition(self, one: Sequence[str], other: Sequence[str]) -> Callable[[], None]:
        """Cut all links between two groups of hosts, both ways, and return a function that heals them."""
        return self.cut([pair for a in one for b in other for pair in ((a, b), (b, a))])
