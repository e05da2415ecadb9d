"""One subscription moves from B1 over B2 to B3, and brokers crash after a step of the move: every step, every broker
and all of them, restarted at once or after the deadline of the move. It completes or is undone, with nothing lost and
nothing twice.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from lavant.broker.federation.session import FederationConfig
from lavant.broker.protocol.queues import Receive
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.simulation.federation.move_steps import MoveStep
from lavant.simulation.federation.server import AskedToMove
from lavant.simulation.kernel import MS, Constant, Exponential, Host, LinkConfig, Scenario, WorkRequested, World, run
from lavant.simulation.scenarios.federation import OBSERVE_US
from lavant.simulation.scenarios.migration import MigrationOptions, MigrationWorld

STEPS = (
    *("OfferSubscription", "PrepareArrival", "HandOverSubscription", "TakeMessages"),
    *("OpenArrival", "ForgetMessages", "EndDeparture", "EndArrival"),
)
OLD, BETWEEN, NEW = "B1", "B2", "B3"
VICTIMS = ((OLD,), (NEW,), (OLD, NEW), (BETWEEN,), (OLD, BETWEEN, NEW))
DEADLINE_MS = 2_000
"""Of a move."""
AT_ONCE_MS, LATE_MS = 10, 3_000
DELAYS_MS = (0.0, 1.5, 8.0)
"""After the step was applied: before it is durable, before the other broker knows it, and after that."""
MOVES_US = 700 * MS
"""By then the brokers know each other, and messages wait, some of them in flight."""


class CrashOptions(MigrationOptions, frozen=True, kw_only=True):
    """A crash after the first time that a step is applied."""

    after: str = ""
    victims: tuple[str, ...] = ()
    is_power_loss: bool = False
    restart_ms: int = AT_ONCE_MS
    delay_ms: float = 0.0


class CrashWorld(MigrationWorld):
    def __init__(self, world: World, options: CrashOptions) -> None:
        self.restart_us = Constant(options.restart_ms * MS)
        super().__init__(world, options, None)
        self._crash = options
        self._has_crashed = False

    def configured(self, name: str) -> FederationConfig:
        config = super().configured(name)
        return msgspec.structs.replace(config, migration_ms_max=DEADLINE_MS, migration_retry_ms_max=500)

    def neighbour_of(self, name: str) -> str | None:
        return max(self.hosts) if self.hosts else None

    def subscribe(self) -> None:
        for name in ("moves", "stays"):
            self.ask(OLD, Subscribe("x >= 2", name), partial(self._known, name))

    def _known(self, name: str, answer: object) -> None:
        self.oracle.subscribed(name, OLD, "x >= 2")

    def publish(self, random: Random) -> None:
        self._publish(random.choice(sorted(self.hosts)), random.randrange(10))

    def lease(self) -> None:
        """A consumer gets messages and keeps them until the move is over."""
        self.ask(OLD, Receive("moves", 2, visibility_ms=1_500), lambda answer: None)

    def move_one(self) -> None:
        self.hosts[OLD].stimulate(WorkRequested(AskedToMove("moves", NEW)))

    def stepped(self, host: Host, step: MoveStep) -> None:
        self.world.count(step.command)
        if step.command == self._crash.after and not self._has_crashed:
            self._has_crashed = True
            self.world.after(int(self._crash.delay_ms * MS), self._crash_all)

    def _crash_all(self) -> None:
        for name in self._crash.victims:
            self.hosts[name].crash(power=self._crash.is_power_loss)


def build(world: World, options: CrashOptions) -> None:
    world.links(LinkConfig())
    federation = CrashWorld(world, options)
    for _ in (OLD, BETWEEN, NEW):
        federation.add_broker()
    world.after(100 * MS, federation.subscribe)
    world.arrivals("clients", Exponential(20 * MS), federation.publish)
    world.arrivals("consumers", Exponential(100 * MS), federation.consume)
    world.after(MOVES_US - 100 * MS, federation.lease)
    world.after(MOVES_US, federation.move_one)

    def observe() -> None:
        federation.observe()
        world.after(OBSERVE_US, observe)

    observe()
    world.at_end("each subscription is at one broker", federation.check_places)
    world.at_end("each publication is in one queue, or acknowledged", federation.check_messages)
    world.at_end("neighbours hold what they should, and nothing waits", federation.check_tables)


SCENARIO = Scenario(
    name="crashes", summary="a crash after a step", options=CrashOptions, build=build, minutes=0.05, calm_s=10
)


def crash(**options: Any) -> dict[str, int]:
    outcome = run(SCENARIO, 1, options=CrashOptions(swarm=False, **options))
    assert outcome.violation is None, f"{options}: {outcome.report()}"
    return outcome.figures


def test_a_move_has_these_steps() -> None:
    figures = crash()
    assert [step for step in STEPS if not figures.get(step)] == []
    assert figures["moved"] == 1


@pytest.mark.parametrize("step", STEPS)
def test_either_broker_or_both_crash_after_a_step(step: str) -> None:
    for victims, restart_ms in (((OLD,), AT_ONCE_MS), ((NEW,), LATE_MS), ((OLD, NEW), AT_ONCE_MS)):
        figures = crash(after=step, victims=victims, restart_ms=restart_ms, is_power_loss=True)
        assert figures["power losses"] == len(victims)


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_any_broker_crashes_at_any_time_after_a_step(step: str) -> None:
    cases = product(VICTIMS, (AT_ONCE_MS, LATE_MS), DELAYS_MS, (False, True))
    for victims, restart_ms, delay_ms, is_power_loss in cases:
        figures = crash(
            after=step, victims=victims, restart_ms=restart_ms, delay_ms=delay_ms, is_power_loss=is_power_loss
        )
        assert figures["power losses" if is_power_loss else "kills"] == len(victims)
