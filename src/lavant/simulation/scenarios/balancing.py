"""`balancing`: brokers of different strength move subscriptions to each other by themselves while they crash.

As `migration`, but the balancing machines decide what moves. All clients subscribe at the weakest broker. Some seeds
have one cluster, others two, each with a head that holds no subscriptions. Besides the faults of all scenarios, brokers
are killed right after a step of a move, subscribers disappear while they move, clusters are partitioned, clients
publish what looks like control messages, and brokers forge reports of others.

Balancing goes on in the calm, and is turned off shortly before the end. By then it must have come to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from lavant.broker.federation.session import FederationConfig
from lavant.broker.protocol.subscriptions import Unsubscribe
from lavant.control.balancing.cluster import ClusterBalancer
from lavant.control.balancing.config import BalancingConfig
from lavant.control.balancing.edge import EdgeBalancer
from lavant.control.balancing.policies.interface import BalancingPolicy
from lavant.control.balancing.policies.registry import DEFAULT_POLICY, POLICIES, balancing_policy
from lavant.core.errors import InvalidValue
from lavant.simulation.federation.balanced_server import (
    DELAY_S,
    FORGED_SUBSCRIPTIONS,
    BalancedServer,
    BalancerSeat,
    ForgeMessage,
)
from lavant.simulation.federation.move_steps import MoveStep
from lavant.simulation.federation.node import MakeMachine
from lavant.simulation.kernel import (
    MS,
    Exponential,
    Host,
    LogUniform,
    Machine,
    S,
    Scenario,
    WorkRequested,
    World,
    schedule_faults,
    swarmed,
    swarmed_links,
)
from lavant.simulation.scenarios.federation import FILTERS, OBSERVE_US, RETRY_US
from lavant.simulation.scenarios.migration import MigrationOptions, MigrationWorld

TIMES = 40
"""The clocks of balancing run so many times as fast as those of the policies."""
SESSION_MS_MAX = 4_000
CLUSTER_SESSION_MS_MAX = 8_000
BUSY_US_MAX = (SESSION_MS_MAX + 2_000) * MS
"""In the calm: a session, and a lease of one whose other side is gone."""
CLUSTER_BUSY_US_MAX = (CLUSTER_SESSION_MS_MAX + 2_000) * MS
OFF_US = 5 * S
"""Before the end, balancing is turned off."""
QUIET_US = 3 * S
"""Before that, nothing has moved."""
CALM_S = 60.0
"""The slowest policy, `thesis`, evens out two brokers at a time: with clusters it needs up to 2,200 s after the last
subscriber has joined, which is 55 s on these clocks.
"""
STRENGTHS = (1.0, 2.0, 4.0, 8.0)
CLUSTER_CUT_US = LogUniform(500 * MS, 8_000 * MS)


class BalancingOptions(MigrationOptions, frozen=True, kw_only=True):
    policy: str = DEFAULT_POLICY
    """Or `any`: each seed has another one."""
    leaves_per_step: float = 0.01
    """The chance that the subscriber disappears then."""
    cluster_cuts_per_min: float = 4.0
    forgeries_per_min: float = 60.0
    gap_ms: float = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy not in {*POLICIES, "any"}:
            raise InvalidValue(f"there is no policy {self.policy!r}; there are {', '.join(POLICIES)}, and any")
        if not 0 <= self.leaves_per_step <= 1:
            raise InvalidValue(f"leaves_per_step is a chance from 0 to 1, got {self.leaves_per_step}")
        if self.cluster_cuts_per_min < 0 or self.forgeries_per_min < 0:
            raise InvalidValue(
                "cluster_cuts_per_min and forgeries_per_min must not be negative, got "
                f"{self.cluster_cuts_per_min} and {self.forgeries_per_min}"
            )


def quickened(config: BalancingConfig) -> BalancingConfig:
    """A policy's parameters with shorter times."""
    times = {
        name: getattr(config, name) // TIMES
        for name in config.__struct_fields__
        if "_ms" in name and name not in {"session_ms_max", "cluster_session_ms_max"}
    }
    return replace(config, **times, session_ms_max=SESSION_MS_MAX, cluster_session_ms_max=CLUSTER_SESSION_MS_MAX)


class BalancedFederation(MigrationWorld):
    """A federation that balances by itself."""

    def __init__(self, world: World, options: BalancingOptions, make_machine: MakeMachine | None) -> None:
        super().__init__(world, options, make_machine)
        random = world.random("balancing")
        name = random.choice(sorted(POLICIES)) if options.policy == "any" else options.policy
        self.policy: BalancingPolicy = balancing_policy(name)
        self.config = quickened(self.policy.config)
        self.clusters = self._drawn(random, options.brokers)
        """Edge brokers by the name of their cluster, which is its head's. A single cluster has none."""
        self.has_heads = len(self.clusters) > 1
        self.strengths = {edge: random.choice(STRENGTHS) for edges in self.clusters.values() for edge in edges}
        self.weakest = next(iter(self.clusters.values()))[0]
        self.strengths[self.weakest] = min(STRENGTHS)
        self.is_on = True
        self._leaving: set[str] = set()
        self._moved_us = 0
        self._busy_since_us: dict[str, tuple[str, int]] = {}
        self._leaves = swarmed(options.leaves_per_step, self._faults) if options.swarm else options.leaves_per_step

    def _drawn(self, random: Random, brokers: int) -> dict[str, list[str]]:
        """B1 and B2 are heads if there are two clusters; enough brokers for that are at least 5."""
        if brokers < 5 or random.random() < 0.5:
            return {"B0": [f"B{number}" for number in range(1, random.randint(2, min(4, brokers)) + 1)]}
        edges = [f"B{number}" for number in range(3, random.randint(5, brokers) + 1)]
        return {"B1": edges[0::2], "B2": edges[1::2]}

    @property
    def names(self) -> list[str]:
        """All brokers, in the order in which they join."""
        heads = list(self.clusters) if self.has_heads else []
        return heads + sorted(edge for edges in self.clusters.values() for edge in edges)

    def cluster_of(self, name: str) -> str:
        return next(cluster for cluster, edges in self.clusters.items() if name in edges or name == cluster)

    # ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def configured(self, name: str) -> FederationConfig:
        return replace(super().configured(name), migration_ms_max=6_000, migration_retry_ms_max=1_000)

    def neighbour_of(self, name: str) -> str | None:
        """Edge brokers are linked to their head, and heads to each other."""
        if not self.has_heads or name == "B1":
            return super().neighbour_of(name)
        return "B1" if name == "B2" else self.cluster_of(name)

    def server_of(self, name: str) -> Callable[..., Machine]:
        seat = BalancerSeat(
            make=partial(self._machine, name),
            cluster=self.cluster_of(name),
            strength=self.strengths.get(name, max(STRENGTHS)),
            is_on=lambda: self.is_on,
        )
        return partial(BalancedServer, joins=lambda: list(self._joins[name]), seat=seat)

    def _machine(self, name: str) -> EdgeBalancer | ClusterBalancer:
        cluster = self.cluster_of(name)
        if name in self.clusters:
            others = [other for other in self.clusters if other != name]
            return ClusterBalancer(name, edges=self.clusters[name], neighbours=others, config=self.config)
        head = cluster if self.has_heads else None
        return EdgeBalancer(name, cluster=cluster, head=head, policy=self.policy, config=self.config)

    def servers(self) -> dict[str, BalancedServer]:
        """Those that run."""
        return {
            name: host.machine
            for name, host in self.hosts.items()
            if host.is_up and isinstance(host.machine, BalancedServer)
        }

    # ── work and faults ───────────────────────────────────────────────────────────────────────────────────────────────

    def work(self, random: Random) -> None:
        chance = random.random()
        if chance < 0.25:
            self._subscribe(self.weakest, random.choice(FILTERS))
        elif chance < 0.28 and self.oracle.subscriptions:
            self.leave(random.choice(sorted(self.oracle.subscriptions)))
        else:
            forged = {"tag": "load_report", "cluster": "B1", "status": "ok"} if chance > 0.95 else {}
            self._publish(random.choice(sorted(self.hosts)), random.randrange(10), **forged)

    def leave(self, name: str) -> None:
        """A subscriber disappears: it unsubscribes wherever its subscription is, until it is nowhere."""
        self.oracle.unsubscribed(name)
        self._leaving.add(name)
        self._insist_to_leave(name)

    def _insist_to_leave(self, name: str) -> None:
        for broker, node in self.nodes().items():
            if node is not None and node.broker.subscriptions.has("", name):
                self.ask(broker, Unsubscribe(name), lambda answer: None)
        self.world.after(RETRY_US, self._insist_to_leave, name)

    def forge(self, random: Random) -> None:
        """A broker sends a report of another one, in its own frame or in that of the other."""
        if len(self.hosts) < 3:
            return
        forger, victim, other = random.sample(sorted(self.hosts), 3)
        is_between = victim not in self._component(other, without=forger)
        source = f"id-{forger if is_between else random.choice((forger, other))}"  # one between them could say anything
        self.hosts[forger].stimulate(WorkRequested(ForgeMessage(victim, other, source)))

    def cut_clusters(self, random: Random) -> None:
        (one, edges), (other, others) = self.clusters.items()
        heal = self.world.network.partition([one, *edges], [other, *others])
        self.world.count("clusters cut")
        self.world.after(min(CLUSTER_CUT_US.draw_us(random), max(1, self.world.calm_us - self.world.now_us)), heal)

    def _noted(self, host: Host, value: Any) -> None:
        if isinstance(value, str):
            self.world.count(value)
        else:
            super()._noted(host, value)

    def stepped(self, host: Host, step: MoveStep) -> None:
        self._moved_us = self.world.now_us
        super().stepped(host, step)
        if self.world.now_us >= self.world.calm_us:
            return
        if self._faults.random() < self._leaves and step.subscription in self.oracle.subscriptions:
            self.world.count("left while moving")
            self.leave(step.subscription)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_forgeries(self) -> str | None:
        for name, server in self.servers().items():
            machine = server.balancer
            if isinstance(machine, EdgeBalancer):
                for peer, report in machine.peers.items():
                    if report.load.subscriptions >= FORGED_SUBSCRIPTIONS:
                        return f"{name} believes a forged report of {peer}"
        return None

    def check_sessions(self) -> str | None:
        """In the calm, no broker is in a session for longer than one may last."""
        now_us, servers = self.world.now_us, self.servers()
        if now_us < self.world.calm_us:
            return None
        for name in self.names:
            server = servers.get(name)
            session = None if server is None else server.busy_with
            if server is None or session is None:
                self._busy_since_us.pop(name, None)
                continue
            is_head = isinstance(server.balancer, ClusterBalancer)
            longest_us = CLUSTER_BUSY_US_MAX if is_head else BUSY_US_MAX
            known, since_us = self._busy_since_us.get(name, (session, now_us))
            if known != session:
                since_us = now_us
            self._busy_since_us[name] = session, since_us
            if self.is_on and now_us - since_us > longest_us:
                return f"{name} has been in a session for {(now_us - since_us) / S:.1f} s"
        return None

    def check_gone(self) -> str | None:
        """Subscribers that disappeared have left nothing."""
        for broker, node in self._all_nodes().items():
            for name in sorted(self._leaving):
                if node.broker.subscriptions.has("", name) or node.queues.exists(name):
                    return f"{name} has disappeared, and is still at {broker}"
        return None

    def turn_off(self) -> None:
        self.is_on = False
        moved_s = (self.world.now_us - self._moved_us) / S
        if moved_s * S < QUIET_US:
            self.world.violated("balancing comes to rest", f"something moved {moved_s:.1f} s before it was turned off")
        wrong = self._unbalanced()
        if wrong is not None:
            self.world.violated("the load is balanced", wrong)
        for name, server in self.servers().items():
            partner = server.balancer.partner if isinstance(server.balancer, ClusterBalancer) else None
            for cluster in sorted(server.watched - {partner}):
                head = self.servers()[self.cluster_of(name)].balancer
                if not (isinstance(head, ClusterBalancer) and head.partner == cluster):
                    self.world.violated("sessions of clusters end", f"{name} still watches the reports of {cluster}")

    def _unbalanced(self) -> str | None:
        """Nothing is published any more, so only matching delays count. One subscription more or less is balanced."""
        if self.policy.name == "even-counts":
            return None
        for edges in self.clusters.values():
            delays = {name: self._delay_s(name) for name in edges}
            high, low = max(delays, key=delays.__getitem__), min(delays, key=delays.__getitem__)
            apart = self.config.delay_threshold * self.config.delay_unit_s
            apart += DELAY_S / self.strengths[high] + DELAY_S / self.strengths[low]
            if delays[high] - delays[low] > apart:
                return f"matching takes {delays[high]:.3f} s at {high} and {delays[low]:.3f} s at {low}"
        return None

    def _delay_s(self, name: str) -> float:
        node = self._all_nodes()[name]
        return len(node.broker.subscriptions) * DELAY_S / self.strengths[name]


def build(world: World, options: BalancingOptions, make_machine: MakeMachine | None = None) -> None:
    """The world of this scenario; tests insert faulty links."""
    world.links(swarmed_links(options, world.random("links")))
    federation = BalancedFederation(world, options, make_machine)
    for _ in federation.names:
        federation.add_broker()
    world.arrivals("clients", Exponential(int(options.gap_ms * MS)), federation.work)
    world.arrivals("consumers", Exponential(int(60 * S / options.consumes_per_min)), federation.consume)
    if options.forgeries_per_min:
        world.arrivals("forgers", Exponential(int(60 * S / options.forgeries_per_min)), federation.forge)
    if options.cluster_cuts_per_min and federation.has_heads:
        world.arrivals("cuts", Exponential(int(60 * S / options.cluster_cuts_per_min)), federation.cut_clusters)

    def observe() -> None:
        federation.observe()
        world.after(OBSERVE_US, observe)

    observe()
    world.invariant("nobody believes a forged report", federation.check_forgeries, every_us=OBSERVE_US)
    world.invariant("no session hangs", federation.check_sessions, every_us=OBSERVE_US)
    world.at(world.end_us - OFF_US, federation.turn_off)
    world.at_calm(federation.calm)
    world.at_end("each subscription is at one broker", federation.check_places)
    world.at_end("each publication is in one queue, or acknowledged", federation.check_messages)
    world.at_end("neighbours hold what they should, and nothing waits", federation.check_tables)
    world.at_end("subscribers that disappeared left nothing", federation.check_gone)
    schedule_faults(world, options, list(federation.hosts.values()))


SCENARIO = Scenario(
    name="balancing",
    summary="brokers move subscriptions to where there is room, and crash; the load is balanced, deliveries are exact",
    options=BalancingOptions,
    build=build,
    minutes=0.5,
    calm_s=CALM_S,
)
