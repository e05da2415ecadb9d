"""The reliable queue four ways: what is predicted holds for a server that runs, with real processes."""

from __future__ import annotations

import pytest

from lavant.cli.reports.queue_models.comparison import with_utilisation
from lavant.cli.reports.queue_models.live import run_queue
from lavant.models.reliable_queue import Phase, QueueScenario, ServiceTime, predict
from lavant.simulation.reliable_queue.observed import controlled
from lavant.simulation.reliable_queue.queue_machine import simulate_queue

PHASE = Phase(count=4, service=ServiceTime(mean_s=0.1))
SCENARIO = QueueScenario(arrival_rate_per_s=28.0, senders=PHASE, consumers=PHASE, loss=0.03, visibility_s=1.0)


def test_a_live_queue_delivers_what_the_machine_delivers_under_the_same_load() -> None:
    """A busy machine can only add to times and attempts, so there is no upper bound here; the soak test has one."""
    live = run_queue(SCENARIO, messages=700, seed=3, stretch=0.25)
    simulated = simulate_queue(SCENARIO, messages=700, seed=3)
    assert live.messages == simulated.messages == 630
    assert live.attempts > simulated.attempts - 0.02
    assert live.delivery_s.mean > 0.95 * simulated.delivery_s.mean
    assert live.p95_s.mean > 0.9 * simulated.p95_s.mean


@pytest.mark.soak
@pytest.mark.parametrize(("utilisation", "stretch"), [(0.3, 3.0), (0.6, 6.0), (0.85, 8.0)])
def test_a_live_queue_is_within_five_percent_of_the_prediction(utilisation: float, stretch: float) -> None:
    """Each takes three minutes. The busier consumers are, the more messages wait for a delay of the machine.

    The queue machine is the control variate, so the interval is small beside the 5 %.
    """
    scenario = with_utilisation(SCENARIO, utilisation)
    live = run_queue(scenario, messages=700, seed=5, stretch=stretch)
    same_load = simulate_queue(scenario, messages=700, seed=5)
    seen = controlled(live, same_load=same_load, long=simulate_queue(scenario, messages=1_000_000, seed=6))
    assert live.attempts == pytest.approx(same_load.attempts, abs=0.02)
    assert live.duplicates <= 0.02
    found = predict(scenario)
    for predicted_s, estimate in ((found.delivery_s, seen.delivery_s), (found.p95_s, seen.p95_s)):
        print(f"{predicted_s:.4f} s predicted, {estimate.mean:.4f} ± {estimate.half_width:.4f} s live")
        assert estimate.half_width < 0.05 * predicted_s
        assert abs(estimate.mean - predicted_s) < 0.05 * predicted_s + estimate.half_width
