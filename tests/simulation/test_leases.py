"""Temporary subscriptions in virtual time: the real server holds, mistakes that are put into it are found."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.simulation.repetition import check_repetition

from lavant.broker.machine.effects import Effect
from lavant.broker.machine.leases import SubscriptionLeases
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.subscriptions import RenewSubscription, Subscribed, Unsubscribe
from lavant.simulation.kernel import run
from lavant.simulation.scenarios import leases
from lavant.simulation.scenarios.leases import EARLY, LEFT, SCENARIO

SEARCHED = range(1, 60)
MINUTES = 1.0


def test_nothing_ends_early_and_nothing_is_left_whoever_is_killed() -> None:
    figures: Counter[str] = Counter()
    for seed in range(1, 13):
        outcome = run(SCENARIO, seed, minutes=MINUTES)
        assert outcome.violation is None, outcome.report()
        figures.update(outcome.figures)
    wanted = ["kills", "power losses", "packets dropped", "journal recovered", "subscriptions that had ended"]
    assert [name for name in wanted if not figures[name]] == []


def test_a_run_repeats_itself(tmp_path: Path) -> None:
    check_repetition("leases", tmp_path, seed=3, minutes=0.5)


# ── mistakes in the server ────────────────────────────────────────────────────────────────────────────────────────────


class Eternal(BrokerMachine):
    """Ends nothing."""

    def _expire(self, now_ms: int) -> None:
        self._leases.due(now_ms)


class Deaf(BrokerMachine):
    """Answers renewals, and does not renew."""

    def _renew_subscription(self, request: RenewSubscription, context: RequestContext, now_ms: int) -> None:
        state = self.broker.subscriptions.find(request.namespace, request.name)
        self._reply(context, Subscribed(state, is_new=False), self.position)


class Impatient(BrokerMachine):
    """Gives nobody time to come back after a start."""

    def open(self, now_ms: int) -> list[Effect]:
        effects = super().open(now_ms)
        self._leases = SubscriptionLeases(now_ms)
        for state in self.broker.subscriptions:
            self._leases.hold(state, now_ms, 1)
        return effects


class Forgetful(BrokerMachine):
    """Does not look after subscriptions that were there when it started."""

    def open(self, now_ms: int) -> list[Effect]:
        effects = super().open(now_ms)
        self._leases = SubscriptionLeases(now_ms)
        return effects


class Unrecorded(BrokerMachine):
    """Ends subscriptions without a record."""

    def _expire(self, now_ms: int) -> None:
        for state in self._leases.due(now_ms):
            self.broker.handle(Unsubscribe(state.name, state.namespace), now_ms)


@pytest.mark.parametrize(
    ("server", "rule"),
    [(Eternal, LEFT), (Deaf, EARLY), (Impatient, EARLY), (Forgetful, LEFT), (Unrecorded, LEFT)],
)
def test_a_mistake_is_found(server: type[BrokerMachine], rule: str) -> None:
    def make(broker: BrokerState, position: int) -> BrokerMachine:
        return server(broker, position=position)

    scenario = msgspec.structs.replace(SCENARIO, build=partial(leases.build, make_server=make))
    found = (run(scenario, seed, minutes=MINUTES).violation for seed in SEARCHED)
    violation = next((each for each in found if each is not None), None)
    assert violation is not None, "no seed finds it"
    assert violation.invariant == rule
