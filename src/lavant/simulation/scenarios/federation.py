"""`federation`: brokers in a random tree that crash, lose power and are partitioned; all that is due arrives, once.

Brokers join and leave at any time, clients subscribe, unsubscribe and publish at any of them. The brokers are the real
ones: machine, journal and links. The oracle is one central matcher.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import msgspec

from lavant.broker.federation.effects import LinkNotice
from lavant.broker.federation.session import FederationConfig
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.federation import NeighbourRemoved, RemoveNeighbour, SubscribedRoute
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Subscribed, Unsubscribe
from lavant.broker.storage.journal import JournalConfig
from lavant.core.errors import InvalidValue
from lavant.simulation.federation.node import BrokerNode, MakeMachine
from lavant.simulation.federation.oracle import FederationOracle, largest
from lavant.simulation.federation.server import AskedByClient, ClientAnswered, FederatedServer
from lavant.simulation.kernel import (
    MS,
    Distribution,
    Exponential,
    FaultOptions,
    Host,
    LinkConfig,
    LogUniform,
    Machine,
    S,
    Scenario,
    WorkRequested,
    World,
    schedule_faults,
    swarmed_disk,
    swarmed_links,
)
from lavant.simulation.queues.ledger import JournalLedger
from lavant.simulation.queues.server import boot

BROKERS_MAX = 20
RESTART_US = LogUniform(10 * MS, 2_000 * MS)
FILTERS = ("x >= 0", "x > 2", "x > 5", "x < 3", "x >= 2 and x <= 5", "x = 3", "x > 2 and x < 8", "x in (1, 6, 7)")
OBSERVE_US = 200 * MS
RETRY_US = 1 * S


class FederationOptions(FaultOptions, frozen=True, kw_only=True):
    power_losses_per_min: float = 6.0
    kills_per_min: float = 6.0
    partitions_per_min: float = 6.0
    full_disks_per_min: float = 2.0
    clock_jumps_per_min: float = 1.0
    brokers: int = 8
    """At most so many; each seed draws a number from two on."""
    gap_ms: float = 60.0
    """Mean time between two actions of all clients."""
    moves_per_min: float = 4.0
    """How often a link is removed, and the tree joined at another place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.brokers <= BROKERS_MAX:
            raise InvalidValue(f"brokers must lie in 2 to {BROKERS_MAX}, got {self.brokers}")
        if self.gap_ms <= 0 or self.moves_per_min < 0:
            raise InvalidValue(
                f"gap_ms must be above 0 and moves_per_min not below, got {self.gap_ms} and {self.moves_per_min}"
            )


class FederationWorld:
    """The brokers of one run, their operator and their clients."""

    restart_us: Distribution = RESTART_US
    """How long a broker is down."""

    def __init__(self, world: World, options: FederationOptions, make_machine: MakeMachine | None) -> None:
        self.world = world
        self.options = options
        self.oracle = FederationOracle()
        self.hosts: dict[str, Host] = {}
        self._joins: dict[str, list[str]] = {}
        self._make_machine = make_machine
        self._random = world.random("tree")
        self._number = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        self._is_moving = False

    # ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_broker(self) -> None:
        name = f"B{len(self.hosts) + 1}"
        ledger = JournalLedger(self.world)
        random = self.world.random(f"{name}/journal")
        segment_bytes = random.choice((16 << 10, 64 << 10))
        journal = JournalConfig(
            segment_bytes=segment_bytes, block_bytes_max=4096, compaction_bytes_min=2 * segment_bytes
        )
        config, server = self.configured(name), self.server_of(name)
        self._joins[name] = []

        def make_node(broker: BrokerState, position: int) -> BrokerMachine:
            if self._make_machine is None:
                return BrokerNode(broker, config, position=position)
            return BrokerNode(broker, config, position=position, make_machine=self._make_machine)

        def start(host: Host) -> Machine:
            return boot(host, journal, ledger, make_node, server)

        disk = swarmed_disk(self.options, self.world.random(f"{name}/disk"))
        near = self.neighbour_of(name)
        self.hosts[name] = self.world.host(name, start, disk=disk, restart_us=self.restart_us, note=self._noted)
        if near is not None:
            self.link(*self._random.sample([name, near], 2))

    def configured(self, name: str) -> FederationConfig:
        """The settings of a broker."""
        return FederationConfig(
            name=name,
            identity=f"id-{name}",
            window_publications=8,
            batch_bytes=2048,
            probe_ms=500,
            probe_timeout_ms=1_500,
        )

    def server_of(self, name: str) -> Callable[..., Machine]:
        """What its host runs."""
        return partial(FederatedServer, joins=lambda: list(self._joins[name]))

    def neighbour_of(self, name: str) -> str | None:
        """The broker that a new one is linked to; None for the first."""
        return self._random.choice(sorted(self.hosts)) if self.hosts else None

    def link(self, dialler: str, acceptor: str) -> None:
        self._joins[dialler].append(acceptor)
        self.oracle.links.add(frozenset((dialler, acceptor)))

    def nodes(self) -> dict[str, BrokerNode | None]:
        """By name; None for a broker that is down."""
        return {name: self._node(host) for name, host in self.hosts.items()}

    def _node(self, host: Host) -> BrokerNode | None:
        machine = host.machine if host.is_up else None
        return machine.node if isinstance(machine, FederatedServer) else None

    def move(self, random: Random) -> None:
        """An operator removes a link on both sides, and joins the tree again at another place."""
        if self._is_moving or not self.oracle.links:
            return
        self._is_moving = True
        link = random.choice(sorted(self.oracle.links, key=sorted))
        one, other = random.sample(sorted(link), 2)
        for here, there in ((one, other), (other, one)):
            if there in self._joins[here]:
                self._joins[here].remove(there)
        self.oracle.links.remove(link)
        self.oracle.topology_changed(self.nodes())
        self.world.count("links removed")

        def then_other(answer: Any) -> None:
            self._insist(other, RemoveNeighbour(one, False), join)

        def join(answer: Any) -> None:
            here = random.choice(sorted(self._component(one)))
            there = random.choice(sorted(self._component(other)))
            self.oracle.topology_changed(self.nodes())
            self.link(here, there)
            self.world.count("links moved")
            self._is_moving = False

        self._insist(one, RemoveNeighbour(other, False), then_other)

    def _component(self, start: str, without: str = "") -> set[str]:
        """The brokers that can be reached without passing that one."""
        found, waiting = {start}, [start]
        while waiting:
            name = waiting.pop()
            for link in self.oracle.links:
                new = link - found - {without}
                if name in link and new:
                    waiting += new
                    found |= new
        return found

    def _insist(self, broker: str, request: Any, then: Callable[[Any], None]) -> None:
        """Ask again and again until there is an answer."""

        def answered(answer: Any) -> None:
            if not is_done:
                is_done.append(True)
                then(answer)

        def ask() -> None:
            if not is_done:
                self.ask(broker, request, answered)
                self.world.after(RETRY_US, ask)

        is_done: list[bool] = []
        ask()

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, broker: str, request: Any, then: Callable[[Any], None]) -> bool:
        """Send a request; False if the broker is down."""
        self._number += 1
        self._then[self._number] = then
        return self.hosts[broker].stimulate(WorkRequested(AskedByClient(self._number, request)))

    def work(self, random: Random) -> None:
        """A client at some broker does something."""
        broker = random.choice(sorted(self.hosts))
        chance = random.random()
        if chance < 0.2:
            self._subscribe(broker, random.choice(FILTERS))
        elif chance < 0.3 and self.oracle.subscriptions:
            name = random.choice(sorted(self.oracle.subscriptions))
            owner = self.oracle.subscriptions[name].broker
            self.oracle.unsubscribed(name)  # from now on, nothing is due
            self.ask(owner, Unsubscribe(name), lambda answer: self.world.count("unsubscribed"))
        else:
            self._publish(broker, random.randrange(10))

    def _subscribe(self, broker: str, filter: str) -> None:
        name = f"s{self._number + 1}"

        def subscribed(answer: Any) -> None:
            if isinstance(answer, Subscribed):
                self.world.count("subscribed")
                self.oracle.subscribed(name, broker, filter)

        self.ask(broker, Subscribe(filter, name), subscribed)

    def _publish(self, broker: str, x: int, **more: str) -> None:
        number = self._number + 1
        row = {"x": x, "n": number}
        self.oracle.publishes(number, broker, row)

        def published(answer: Any) -> None:
            if isinstance(answer, Published) and not isinstance(answer.entries[0], Refused):
                self.world.count("published")
                self.oracle.accepted(number)

        self.ask(broker, Publish([msgspec.json.encode({**row, **more})]), published)

    def _noted(self, host: Host, value: Any) -> None:
        if isinstance(value, ClientAnswered):
            then = self._then.pop(value.number, None)
            if isinstance(value.answer, NeighbourRemoved):
                self.world.count("publications deleted with a link", value.answer.publications)
            if then is not None:
                then(value.answer)
        elif isinstance(value, LinkNotice):
            self.world.count("notices")

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    def calm(self) -> None:
        for one in self.hosts:
            for other in self.hosts:
                if one < other:
                    self.world.network.configure(one, other, LinkConfig())

    def check_deliveries(self) -> str | None:
        return self.oracle.verdict(self._all_nodes())

    def check_tables(self) -> str | None:
        nodes = self._all_nodes()
        for link in sorted(self.oracle.links, key=sorted):
            for here, there in (sorted(link), sorted(link, reverse=True)):
                neighbour = nodes[here].broker.federation.neighbours.get(there)
                if neighbour is None:
                    return f"{there} is no neighbour of {here}"
                if neighbour.routes.digests() != nodes[there].machine.router.outgoing[here].table.digests():
                    return f"{here} does not hold what {there} should have told"
                if len(neighbour.queue):
                    return f"{len(neighbour.queue)} publications still wait at {here} for {there}"
                side = self._component(there, without=here)
                members = {each.name for each in nodes[here].machine.members_behind[there].values()}
                if members != side:
                    return f"{here} believes that {sorted(members)} are behind {there}, not {sorted(side)}"
                wanted = largest(state.filter for name in side for state in nodes[name].broker.subscriptions)
                held = {entry.filter for entry in neighbour.routes if isinstance(entry, SubscribedRoute)}
                if held != wanted:
                    return f"{here} holds {sorted(map(str, held))} of {there}, not {sorted(wanted)}"
        return None

    def _all_nodes(self) -> dict[str, BrokerNode]:
        return {name: node for name, node in self.nodes().items() if node is not None}


def build(world: World, options: FederationOptions, make_machine: MakeMachine | None = None) -> None:
    """The world of this scenario; tests insert faulty links."""
    world.links(swarmed_links(options, world.random("links")))
    federation = FederationWorld(world, options, make_machine)
    count = world.random("size").randint(2, options.brokers)
    for _ in range((count + 1) // 2):
        federation.add_broker()
    for number in range(count // 2):  # the others join while all is running
        world.after(number * S, federation.add_broker)
    world.arrivals("clients", Exponential(int(options.gap_ms * MS)), federation.work)
    if options.moves_per_min:
        world.arrivals("moves", Exponential(int(60_000 * MS / options.moves_per_min)), federation.move)

    def observe() -> None:
        federation.oracle.observe(federation.nodes())
        world.after(OBSERVE_US, observe)

    observe()
    world.at_calm(federation.calm)
    world.at_end("each subscription got what is due, once", federation.check_deliveries)
    world.at_end("neighbours hold what they should, and nothing waits", federation.check_tables)
    schedule_faults(world, options, list(federation.hosts.values()))


SCENARIO = Scenario(
    name="federation",
    summary="brokers in a tree crash, are partitioned, join and leave; each subscription gets what is due, once",
    options=FederationOptions,
    build=build,
    minutes=0.5,
)
