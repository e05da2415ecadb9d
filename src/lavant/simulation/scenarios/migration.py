"""`migration`: subscriptions move between brokers that crash and lose power; each publication is in one queue, once.

As `federation`, and an operator moves subscriptions with their queues all the time, while consumers receive and
acknowledge at the broker where the subscription is. Some consumers let their leases expire. Besides the faults of all
scenarios, brokers are killed right after a step of a move.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec

from lavant.broker.protocol.queues import Acknowledge, Acknowledged, Delivery, Receive, Received
from lavant.core.errors import InvalidValue
from lavant.simulation.federation.move_steps import MoveStep, SteppedMachine
from lavant.simulation.federation.node import MakeMachine
from lavant.simulation.federation.oracle import delivered
from lavant.simulation.federation.server import AskedToMove
from lavant.simulation.kernel import (
    MS,
    Exponential,
    Host,
    S,
    Scenario,
    Uniform,
    WorkRequested,
    World,
    schedule_faults,
    swarmed,
    swarmed_links,
)
from lavant.simulation.scenarios.federation import OBSERVE_US, FederationOptions, FederationWorld

VISIBILITIES_MS = (100, 1_000, 4_000)
STEPS_MAX = 500
"""Of a move at one broker: eight, one for each batch of messages that follows, and repetitions after lost answers."""


class MigrationOptions(FederationOptions, frozen=True, kw_only=True):
    moves_per_min: float = 0.0
    brokers: int = 5
    migrations_per_min: float = 120.0
    """How often a subscription is moved."""
    consumes_per_min: float = 300.0
    kills_per_step: float = 0.03
    """The chance that a broker dies after a step of a move."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.migrations_per_min <= 0 or self.consumes_per_min <= 0:
            raise InvalidValue(
                "migrations_per_min and consumes_per_min must be above 0, got "
                f"{self.migrations_per_min} and {self.consumes_per_min}"
            )
        if not 0 <= self.kills_per_step <= 1:
            raise InvalidValue(f"kills_per_step is a chance from 0 to 1, got {self.kills_per_step}")


class MigrationWorld(FederationWorld):
    """A federation with an operator who moves subscriptions, and consumers."""

    def __init__(self, world: World, options: MigrationOptions, make_machine: MakeMachine | None) -> None:
        super().__init__(world, options, SteppedMachine if make_machine is None else make_machine)
        self._faults = world.random("faults in moves")
        self._kills = swarmed(options.kills_per_step, self._faults) if options.swarm else options.kills_per_step
        self._acknowledged: dict[str, set[int]] = {}
        """By subscription: publications that a consumer acknowledged, and knows so."""
        self._perhaps: dict[str, set[int]] = {}
        """Those whose acknowledgement was not answered."""
        self._steps: Counter[tuple[str, str]] = Counter()
        """By broker and move."""

    def migrate(self, random: Random) -> None:
        """The operator moves a subscription."""
        if not self.oracle.subscriptions:
            return
        name = random.choice(sorted(self.oracle.subscriptions))
        source = self.oracle.subscriptions[name].broker
        target = random.choice(sorted(self.hosts))
        if target != source:
            self.hosts[source].stimulate(WorkRequested(AskedToMove(name, target)))

    def consume(self, random: Random) -> None:
        """A consumer receives some messages. It acknowledges most of them, sooner or later."""
        if not self.oracle.subscriptions:
            return
        name = random.choice(sorted(self.oracle.subscriptions))
        broker = self.oracle.subscriptions[name].broker
        delay_us, is_patient = random.choice((0, 50, 500, 3_000)) * MS, random.random() < 0.3

        def received(answer: Any) -> None:
            if isinstance(answer, Received) and answer.deliveries and not is_patient:
                self.world.after(delay_us, lambda: self._acknowledge(broker, name, answer.deliveries))

        self.ask(broker, Receive(name, 3, visibility_ms=random.choice(VISIBILITIES_MS)), received)

    def _acknowledge(self, broker: str, name: str, deliveries: list[Delivery]) -> None:
        numbers = [msgspec.json.decode(each.body)["n"] for each in deliveries]
        perhaps = self._perhaps.setdefault(name, set())
        new = set(numbers) - perhaps

        def answered(answer: Any) -> None:
            if not isinstance(answer, Acknowledged):
                perhaps.difference_update(new)
                return
            done = {number for index, number in enumerate(numbers) if index not in answer.refused}
            perhaps.difference_update(new)
            self._acknowledged.setdefault(name, set()).update(done)
            self.world.count("acknowledged", len(done))

        perhaps.update(new)
        self.ask(broker, Acknowledge(name, [each.receipt for each in deliveries]), answered)

    def observe(self) -> None:
        """Find out where subscriptions are, and which of them are established."""
        nodes = self.nodes()
        for each in self.oracle.subscriptions.values():
            for name, node in nodes.items():
                if node is None or node.durable < node.position or name == each.broker:
                    continue
                if node.broker.subscriptions.has("", each.name) and not node.queues.transfers.is_arriving(each.name):
                    each.established |= {each.broker, name}
                    each.broker = name
                    self.world.count("moved")
        self.oracle.observe(nodes)

    # ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _noted(self, host: Host, value: Any) -> None:
        if isinstance(value, MoveStep):
            self._count(host, value)
            self.stepped(host, value)
        else:
            super()._noted(host, value)

    def _count(self, host: Host, step: MoveStep) -> None:
        """A move that goes in circles is found here: until the end of the run it would take very many steps."""
        self._steps[host.name, step.migration] += 1
        if self._steps[host.name, step.migration] > STEPS_MAX:
            detail = f"{host.name} repeats {step.command} of {step.subscription}: over {STEPS_MAX} steps"
            self.world.violated("a move takes few steps", detail)

    def stepped(self, host: Host, step: MoveStep) -> None:
        """A broker has applied a step of a move, and may die of it."""
        if self.world.now_us < self.world.calm_us and self._faults.random() < self._kills:
            delay_us = Uniform(0, 30 * MS).draw_us(self._faults)
            self.world.after(delay_us, self._kill, host, step.command, host.incarnation)

    def _kill(self, host: Host, command: str, incarnation: int) -> None:
        if host.is_up and host.incarnation == incarnation and self.world.now_us < self.world.calm_us:
            self.world.count(f"killed after {command}")
            host.crash(power=self._faults.random() < 0.5)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────────

    def check_places(self) -> str | None:
        """Each subscription is at one broker, and no move is under way."""
        nodes = self._all_nodes()
        for name, node in nodes.items():
            moves = node.broker.migrations
            under_way = [each.name for each in moves.departures.values()]
            under_way += [each.name for each in moves.arrivals.values()]
            if under_way:
                return f"{under_way[0]} is still on its way at {name}"
        for each in self.oracle.subscriptions.values():
            places = [name for name, node in nodes.items() if node.broker.subscriptions.has("", each.name)]
            if len(places) != 1:
                return f"{each.name} is at {places}, not at one broker"
        return None

    def check_messages(self) -> str | None:
        """Each publication that is due was acknowledged, or is in the queue of its subscription, once."""
        nodes = self._all_nodes()
        for each in self.oracle.subscriptions.values():
            found = Counter(number for node in nodes.values() for number in delivered(node, each.name))
            done, perhaps = self._acknowledged.get(each.name, set()), self._perhaps.get(each.name, set())
            twice = sorted(number for number, times in found.items() if times > 1 or number in done)
            if twice:
                return f"{each.name} has publication {twice[0]} twice"
            missing = sorted(each.due - set(found) - done - perhaps)
            if missing:
                return f"{each.name} at {each.broker} did not get publications {missing[:5]}, which were due"
            wrong = sorted(set(found) - each.may)
            if wrong:
                return f"{each.name} has publication {wrong[0]}, which it does not want"
        return None


def build(world: World, options: MigrationOptions, make_machine: MakeMachine | None = None) -> None:
    """The world of this scenario; tests insert faulty links."""
    world.links(swarmed_links(options, world.random("links")))
    federation = MigrationWorld(world, options, make_machine)
    for _ in range(world.random("size").randint(2, options.brokers)):
        federation.add_broker()
    world.arrivals("clients", Exponential(int(options.gap_ms * MS)), federation.work)
    world.arrivals("moves", Exponential(int(60 * S / options.migrations_per_min)), federation.migrate)
    world.arrivals("consumers", Exponential(int(60 * S / options.consumes_per_min)), federation.consume)

    def observe() -> None:
        federation.observe()
        world.after(OBSERVE_US, observe)

    observe()
    world.at_calm(federation.calm)
    world.at_end("each subscription is at one broker", federation.check_places)
    world.at_end("each publication is in one queue, or acknowledged", federation.check_messages)
    world.at_end("neighbours hold what they should, and nothing waits", federation.check_tables)
    schedule_faults(world, options, list(federation.hosts.values()))


SCENARIO = Scenario(
    name="migration",
    summary="subscriptions move between brokers that crash; each publication is in one queue, or acknowledged",
    options=MigrationOptions,
    build=build,
    minutes=0.5,
)
