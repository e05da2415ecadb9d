"""A broker that gets more than it can match moves a subscription away nevertheless, in virtual time."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from lavant.broker.federation.migration.flush import PathFlushes
from lavant.broker.federation.session import FederationConfig
from lavant.broker.protocol.subscriptions import Subscribe
from lavant.simulation.federation.server import AskedToMove
from lavant.simulation.kernel import MS, Exponential, LinkConfig, RunOutcome, S, Scenario, WorkRequested, World, run
from lavant.simulation.scenarios.federation import OBSERVE_US
from lavant.simulation.scenarios.migration import MigrationOptions, MigrationWorld

SLOW, BETWEEN, NEW = "B1", "B2", "B3"
GAP_MS = 50
MATCHING_MS = 75
"""For a publication: the broker can match two thirds of what comes."""
DEADLINE_MS = 3_000
"""Of a move; what waits when it begins takes more than twice as long."""
MOVES_US, MOVED_US = 12 * S, 35 * S


class BacklogWorld(MigrationWorld):
    def configured(self, name: str) -> FederationConfig:
        return replace(super().configured(name), migration_ms_max=DEADLINE_MS, migration_retry_ms_max=500)

    def neighbour_of(self, name: str) -> str | None:
        return max(self.hosts) if self.hosts else None

    def begin(self) -> None:
        node = self._node(self.hosts[SLOW])
        assert node is not None
        node.matching_ms = MATCHING_MS
        self.ask(SLOW, Subscribe("x >= 0", "s"), lambda answer: self.oracle.subscribed("s", SLOW, "x >= 0"))

    def publish(self, random: Random) -> None:
        self._publish(BETWEEN, random.randrange(10))

    def move_one(self) -> None:
        self.hosts[SLOW].stimulate(WorkRequested(AskedToMove("s", NEW)))

    def check_moved(self) -> None:
        broker = self.oracle.subscriptions["s"].broker
        if broker != NEW:
            self.world.violated("the slow broker gets rid of the subscription", f"it is at {broker}")


def build(world: World, options: MigrationOptions) -> None:
    world.links(LinkConfig())
    federation = BacklogWorld(world, options, None)
    for _ in (SLOW, BETWEEN, NEW):
        federation.add_broker()
    world.after(S, federation.begin)
    world.arrivals("clients", Exponential(GAP_MS * MS), federation.publish)
    world.after(MOVES_US, federation.move_one)
    world.after(MOVED_US, federation.check_moved)

    def observe() -> None:
        federation.observe()
        world.after(OBSERVE_US, observe)

    observe()
    world.at_end("each subscription is at one broker", federation.check_places)
    world.at_end("each publication is in one queue, or acknowledged", federation.check_messages)
    world.at_end("neighbours hold what they should, and nothing waits", federation.check_tables)


SCENARIO = Scenario(
    name="backlog", summary="a slow broker moves a subscription", options=MigrationOptions, build=build, minutes=0.6
)


def outcome(seed: int) -> RunOutcome:
    return run(SCENARIO, seed, options=MigrationOptions(swarm=False, kills_per_step=0.0))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_broker_that_is_behind_hands_over_when_it_has_worked_off_what_came_before(seed: int) -> None:
    found = outcome(seed)
    assert found.violation is None, found.report()


def test_a_deadline_without_regard_to_progress_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFlushes, "is_working_off", lambda self, migration, *, within_ms: False)
    violation = outcome(1).violation
    assert violation is not None
    assert "it is at B1" in str(violation)
