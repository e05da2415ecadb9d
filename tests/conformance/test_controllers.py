"""One suite over every controller of a publisher: the whole publisher in virtual time."""

from __future__ import annotations

import pytest

from lavant.control.publishing import CONTROLLERS, PublisherConfig, TuningConfig
from lavant.simulation.publisher.config import BrokerConfig, SubscriberConfig, SystemConfig
from lavant.simulation.publisher.load import LoadStep
from lavant.simulation.publisher.system import PublisherSystem

STEPS = (LoadStep(2, 20), LoadStep(60, 20), LoadStep(0.001, 60))
SLOW = SystemConfig(broker=BrokerConfig(room=40, subscriber=SubscriberConfig(read_ms=10, away_ms=500)))


def run(controller: str, *, seed: int = 1, system: SystemConfig | None = None, **tuning: int) -> PublisherSystem:
    config = PublisherConfig(tuning=TuningConfig(controller=controller, batch_size=tuning.get("batch_size", 20)))
    system = SystemConfig() if system is None else system
    publisher = PublisherSystem(config, STEPS, system=system, seed=seed)
    publisher.run()
    return publisher


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
@pytest.mark.parametrize("system", [SystemConfig(), SLOW], ids=["quick", "slow"])
def test_everything_that_was_received_is_published_when_the_load_is_over(controller: str, system: SystemConfig) -> None:
    publisher = run(controller, system=system)
    figures = publisher.machine.statistics(publisher.end_us // 1000)
    assert figures.received > 1000
    assert (figures.buffered, figures.waiting, figures.dropped) == (0, 0, 0)
    assert figures.published == figures.received == len(publisher.taken)


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
def test_the_same_seed_gives_the_same_run(controller: str) -> None:
    first, second, other = run(controller), run(controller), run(controller, seed=2)
    assert (first.taken, first.decisions) == (second.taken, second.decisions)
    assert first.taken != other.taken


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
def test_every_change_is_a_decision_with_its_reason_and_figures(controller: str) -> None:
    publisher = run(controller, system=SLOW)
    settings = publisher.machine.settings
    if not publisher.decisions:
        assert controller == "fixed"
        return
    last = publisher.decisions[-1]
    assert (last.figures["batch_size"], last.figures["poll_ms"]) == (settings.batch_size, settings.poll_ms)
    assert last.figures["transfers_max"] == settings.transfers_max
    times = [decision.time_ms for decision in publisher.decisions]
    assert times == sorted(times)
    for decision in publisher.decisions:
        assert decision.loop == "tuning"
        assert decision.reason
        assert "→" in decision.action
        assert decision.figures["load_per_s"] >= 0
