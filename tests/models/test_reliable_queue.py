"""Predictions of the reliable queue against independent figures, and against Lavant's own queue machine."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.reliable_queue import (
    Phase,
    QueueGoal,
    QueueScenario,
    ServiceTime,
    TimerStart,
    evaluate,
    plan,
    predict,
)
from lavant.models.reliable_queue.bursts import longer_wait_s
from lavant.models.reliable_queue.lindley import wait_s
from lavant.models.reliable_queue.planning import least_consumers, timeout_cost, with_consumers
from lavant.models.reliable_queue.scenario import DeliveryOrder, ScenarioFile, ServiceFamily, scenario_text
from lavant.simulation.reliable_queue.load import service_times
from lavant.simulation.reliable_queue.net import simulate_net
from lavant.simulation.reliable_queue.observed import controlled, observed
from lavant.simulation.reliable_queue.queue_machine import simulate_queue

EXPECTED_W = {0.99: (0.31238, 0.22647, 0.20816, 0.20306), 0.88: (0.41238, 0.25228, 0.22453, 0.21689)}
"""Seconds for 4 to 7 threads in each phase, by independent code."""


def paper(threads: int, q: float, order: DeliveryOrder = DeliveryOrder.OUT_OF_ORDER) -> QueueScenario:
    phase = Phase(count=threads, service=ServiceTime(mean_s=0.1))
    return QueueScenario(
        arrival_rate_per_s=30.3,
        senders=phase,
        consumers=phase,
        loss=1 - q,
        visibility_s=0.0,
        timer=TimerStart.SEND,
        order=order,
    )


def at_queue(**changes: object) -> QueueScenario:
    scenario = QueueScenario(arrival_rate_per_s=30.0, consumers=Phase(count=5, service=ServiceTime(mean_s=0.1)))
    return msgspec.structs.replace(scenario, **changes)


@pytest.mark.parametrize("q", EXPECTED_W)
def test_the_equations_give_the_independent_figures_to_five_digits(q: float) -> None:
    threads = np.arange(4, 8)
    found = evaluate(
        arrival_rate_per_s=30.3, senders=threads, sender_s=0.1, consumers=threads, consumer_s=0.1, attempts=1 / q
    )
    assert found.sojourn_s.round(5).tolist() == list(EXPECTED_W[q])
    assert [round(predict(paper(n, q)).delivery_s, 5) for n in range(4, 8)] == list(EXPECTED_W[q])


def test_the_sums_of_equations_5_and_7_are_what_the_columns_give() -> None:
    """Eq. 5 as printed, summed term by term."""
    for threads, rate in ((3, 20.0), (6, 50.0), (10, 95.0)):
        rho = rate * 0.1 / threads
        terms = [(threads * rho) ** k / math.factorial(k) for k in range(threads)]
        terms += [threads**threads * rho**k / math.factorial(threads) for k in range(threads, 4000)]
        expected = sum(k * term for k, term in enumerate(terms)) / sum(terms)
        found = evaluate(arrival_rate_per_s=rate, senders=1, sender_s=0.0, consumers=threads, consumer_s=0.1)
        assert found.requests[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("timeout_s", [0.5, 2.0])
def test_a_loss_costs_the_timeout_of_the_corrected_equation_9(timeout_s: float) -> None:
    p, q = 0.1, 0.9
    still = predict(at_queue(loss=p, visibility_s=0.0, timer=TimerStart.SEND)).delivery_s
    sent = predict(at_queue(loss=p, visibility_s=timeout_s, timer=TimerStart.SEND, link_s=0.03)).delivery_s
    assert sent == pytest.approx(still + 0.06 + p / q * timeout_s)
    if math.exp(-10 * timeout_s) < 1e-6:
        received = predict(at_queue(loss=p, visibility_s=timeout_s)).delivery_s
        left_s = timeout_s - (1 - math.exp(-10 * timeout_s)) / 10
        assert received == pytest.approx(still + p / q * left_s, rel=1e-4)


def test_a_distribution_has_the_mean_that_is_predicted() -> None:
    """M/M/1: response times are exponential with rate μ − λ, so the percentiles are known."""
    one = Phase(count=1, service=ServiceTime(mean_s=0.1))
    found = predict(at_queue(arrival_rate_per_s=5.0, consumers=one), percentile=0.999)
    assert found.delivery_s == pytest.approx(0.2)
    assert found.p95_s == pytest.approx(0.2 * math.log(20), rel=2e-3)
    assert found.p50_s == pytest.approx(0.2 * math.log(2), rel=2e-3)
    assert found.percentile_s(0.999) == pytest.approx(0.2 * math.log(1000), rel=2e-3)


@pytest.mark.parametrize(
    ("threads", "q", "order", "tolerance"),
    [
        (5, 0.88, DeliveryOrder.OUT_OF_ORDER, 0.0),
        (6, 0.99, DeliveryOrder.OUT_OF_ORDER, 0.0),
        (6, 0.99, DeliveryOrder.IN_ORDER, 0.05),
        (9, 0.88, DeliveryOrder.IN_ORDER, 0.05),
    ],
)
def test_the_queue_machine_agrees(threads: int, q: float, order: DeliveryOrder, tolerance: float) -> None:
    """Out-of-order within the 95 % interval of the simulation; in-order within 5 % of it."""
    scenario = paper(threads, q, order)
    found, simulated = predict(scenario), simulate_queue(scenario, messages=30_000, seed=4)
    error = abs(found.delivery_s - simulated.delivery_s.mean)
    assert error < simulated.delivery_s.half_width + tolerance * simulated.delivery_s.mean
    assert simulated.attempts == pytest.approx(found.attempts, rel=0.01)
    assert simulated.utilisation == pytest.approx(found.consumers.utilisation, rel=0.03)


@pytest.mark.soak
@pytest.mark.parametrize("q", EXPECTED_W)
@pytest.mark.parametrize("threads", range(4, 11))
def test_net_and_queue_machine_agree_in_long_runs(threads: int, q: float) -> None:
    """Of 28 intervals of 95 %, one or two miss; of those one and a half times as wide (99.5 %), seldom any."""
    out = simulate_queue(paper(threads, q), messages=400_000, seed=2).delivery_s
    net = simulate_net(paper(threads, q), messages=400_000, seed=2).delivery_s
    for seen in (out, net):
        assert abs(predict(paper(threads, q)).delivery_s - seen.mean) < 1.5 * seen.half_width
    ordered = paper(threads, q, DeliveryOrder.IN_ORDER)
    within = simulate_queue(ordered, messages=400_000, seed=3).delivery_s
    assert predict(ordered).delivery_s == pytest.approx(within.mean, rel=0.05)
    if q == 0.99:
        assert 1.45 <= within.mean / out.mean <= 1.63


def random_in_order(random: np.random.Generator) -> QueueScenario:
    """Poisson arrivals, loads of .3 to .85, 1 to 20 threads, variabilities up to 2.5, any distribution."""

    def phase(load: float) -> Phase:
        count, scv = int(random.integers(1, 21)), float(random.choice([0.0, 1.0, random.uniform(0.1, 2.5)]))
        families = [each for each in ServiceFamily if scv >= 1 or each is not ServiceFamily.HYPEREXPONENTIAL]
        family = families[random.integers(len(families))]
        return Phase(count=count, service=ServiceTime(mean_s=load * count, scv=scv, family=family))

    loss = float(random.choice([0.0, 0.01, 0.12]))
    return QueueScenario(
        arrival_rate_per_s=1.0,
        senders=phase(random.uniform(0.3, 0.85)),
        consumers=phase(random.uniform(0.3, 0.85) * (1.0 - loss)),
        loss=loss,
        visibility_s=0.0,
        timer=TimerStart.SEND,
        order=DeliveryOrder.IN_ORDER,
    )


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(24))
def test_in_order_delivery_is_within_five_percent_for_any_distribution(seed: int) -> None:
    """Beside the 5 %, the simulation may be off by its own interval."""
    scenario = random_in_order(np.random.default_rng(seed))
    simulated = simulate_queue(scenario, messages=60_000, seed=seed).delivery_s
    error = abs(predict(scenario).delivery_s - simulated.mean)
    assert error < 0.05 * simulated.mean + simulated.half_width, scenario_text(scenario)


def test_a_control_variate_leaves_what_a_run_adds_and_not_the_chance_of_its_load() -> None:
    """A run whose messages take 3 ms longer than simulated, and every tenth of them 13 ms."""
    scenario = paper(5, 0.99)
    same_load, long = (simulate_queue(scenario, messages=each, seed=each) for each in (2_000, 30_000))
    added_s = np.where(np.arange(same_load.messages) % 10 == 0, 0.013, 0.003)
    run = observed(same_load.times_s + added_s, attempts=1.0, duplicates=0.0, utilisation=0.5)
    seen = controlled(run, same_load=same_load, long=long)
    assert seen.delivery_s.mean == pytest.approx(long.delivery_s.mean + 0.004)
    assert seen.p95_s.mean == pytest.approx(long.p95_s.mean + 0.004, abs=0.003)
    assert seen.delivery_s.half_width == pytest.approx(long.delivery_s.half_width, rel=0.01)
    assert seen.delivery_s.half_width < 0.5 * run.delivery_s.half_width


@pytest.mark.parametrize("family", ServiceFamily)
@pytest.mark.parametrize("load", [0.4, 0.9])
def test_the_wait_at_one_server_is_that_of_pollaczek_and_khinchine(family: ServiceFamily, load: float) -> None:
    """The tail of a lognormal distribution reaches beyond the grid."""
    tolerance = 0.04 if family is ServiceFamily.LOGNORMAL else 0.015
    for scv in (1.5, 3.0) if family is ServiceFamily.HYPEREXPONENTIAL else (0.0, 0.4, 2.0):
        found = wait_s(
            rate_per_s=1.0, arrival_scv=1.0, service=ServiceTime(mean_s=load, scv=scv, family=family), servers=1
        )
        assert found == pytest.approx(load**2 * (1 + scv) / (2 * (1 - load)), rel=tolerance)


def test_the_wait_after_arrivals_that_vary_is_that_of_the_exact_equation() -> None:
    """GI/M/1: σ = A*(μ(1 − σ)), and the mean wait is σ/(μ(1 − σ)); gaps are gamma with a variability of 3."""
    mu, sigma = 1.25, 0.5
    for _ in range(500):
        sigma = (1 + 3.0 * mu * (1 - sigma)) ** (-1 / 3.0)
    found = wait_s(rate_per_s=1.0, arrival_scv=3.0, service=ServiceTime(mean_s=1 / mu), servers=1)
    assert found == pytest.approx(sigma / (mu * (1 - sigma)), rel=0.015)


@pytest.mark.parametrize("scv", [0.3, 1.0, 2.0])
def test_bursts_are_exact_for_one_consumer_and_a_sender_for_every_message(scv: float) -> None:
    """Against the recursion of the docstring, message by message."""
    random = np.random.default_rng(3)
    sender, consumer = ServiceTime(mean_s=12.0, scv=scv), ServiceTime(mean_s=0.6, scv=0.5)
    sent, services = service_times(sender, 200_000, random), service_times(consumer, 200_000, random)
    gaps = random.standard_exponential(200_000)
    released = started = waits = longer = 0.0
    for sent_s, gap_s, service_s in zip(sent.tolist(), gaps.tolist(), services.tolist(), strict=True):
        released = max(sent_s, released - gap_s)
        started = max(sent_s, started - gap_s + service_s)
        waits = max(0.0, waits - gap_s + service_s)
        longer += started - released - waits
    found = longer_wait_s(
        rate_per_s=1.0,
        arrival_scv=1.0,
        sender=sender,
        delaying=1.0,
        consumer=consumer,
        consumers=1,
        utilisation=0.6,
        attempts=1.0,
    )
    assert found == pytest.approx(longer / len(sent), rel=0.03)


@pytest.mark.parametrize(
    "senders",
    [
        Phase(count=1, service=ServiceTime(mean_s=0.02, scv=2.0)),
        Phase(count=9, service=ServiceTime(mean_s=0.2, scv=0.0)),
    ],
)
def test_senders_that_cannot_overtake_make_both_orders_alike(senders: Phase) -> None:
    """One sender, or many that all take the same time."""
    out, within = (predict(at_queue(senders=senders, order=order)) for order in DeliveryOrder)
    assert within.delivery_s == pytest.approx(out.delivery_s, rel=2e-3)
    assert within.held == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    "changes",
    [{"arrival_scv": 2.0}, {"loss": 0.1}, {"consumers": Phase(count=9, service=ServiceTime(mean_s=0.1, scv=3.0))}],
)
def test_a_plan_says_where_its_in_order_times_were_not_checked(changes: dict[str, object]) -> None:
    senders = Phase(count=5, service=ServiceTime(mean_s=0.1))
    ordered = at_queue(senders=senders, order=DeliveryOrder.IN_ORDER)
    assert not plan(ordered, QueueGoal()).warnings
    (warning,) = plan(msgspec.structs.replace(ordered, **changes), QueueGoal()).warnings
    assert "check with `lavant queue compare`" in warning
    (warning,) = plan(ordered, QueueGoal(delivery_s=2.0, percentile=0.95)).warnings
    assert "percentiles of in-order delivery times" in warning


@pytest.mark.parametrize(
    ("timeout_s", "loss", "scv"), [(0.05, 0.0, 1.0), (0.15, 0.05, 1.0), (0.1, 0.02, 2.0), (0.3, 0.1, 0.25)]
)
def test_messages_that_come_twice_are_predicted(timeout_s: float, loss: float, scv: float) -> None:
    consumers = Phase(count=10, service=ServiceTime(mean_s=0.1, scv=scv))
    scenario = at_queue(consumers=consumers, visibility_s=timeout_s, loss=loss)
    found, simulated = predict(scenario), simulate_queue(scenario, messages=20_000, seed=1)
    assert simulated.delivery_s.mean == pytest.approx(found.delivery_s, rel=0.04)
    assert simulated.p95_s.mean == pytest.approx(found.p95_s, rel=0.05)
    assert simulated.duplicates == pytest.approx(found.duplicates, rel=0.12, abs=0.01)


@pytest.mark.parametrize("family", ServiceFamily)
def test_general_service_times_are_predicted(family: ServiceFamily) -> None:
    service = ServiceTime(mean_s=0.1, scv=1.5, family=family)
    scenario = at_queue(consumers=Phase(count=4, service=service), loss=0.05, visibility_s=3.0)
    found, simulated = predict(scenario), simulate_queue(scenario, messages=40_000, seed=2)
    assert simulated.delivery_s.mean == pytest.approx(found.delivery_s, rel=0.08)


def test_an_unstable_phase_is_named_with_the_threads_that_it_needs() -> None:
    with pytest.raises(Infeasible, match=r"senders are too slow: 3 senders .* a count of at least 4"):
        predict(paper(3, 0.99))
    slow = msgspec.structs.replace(paper(4, 0.5), senders=None)
    with pytest.raises(Infeasible, match=r"consumers are too slow: 4 consumers .* lost and repeated.* at least 7"):
        predict(slow)
    assert predict(with_consumers(slow, 7)).consumers.utilisation < 1


def test_a_timeout_below_the_service_time_says_what_happens() -> None:
    scenario = at_queue(consumers=Phase(count=12, service=ServiceTime(mean_s=0.1)), visibility_s=0.05)
    (warning,) = plan(scenario, QueueGoal()).warnings
    assert "below the mean service time of 0.1 s" in warning
    assert "is processed 2." in warning


def test_repetitions_fill_the_consumers_and_leave_room_for_what_arrives() -> None:
    """A message that waits can still be acknowledged by its former holder, so even a tiny timeout is stable."""
    found = predict(at_queue(visibility_s=0.01))
    simulated = simulate_queue(at_queue(visibility_s=0.01), messages=10_000, seed=1)
    assert 0.9 < found.consumers.utilisation < 1
    assert simulated.utilisation == pytest.approx(found.consumers.utilisation, abs=0.05)


def test_the_least_consumers_reach_the_goal_and_one_fewer_does_not() -> None:
    scenario = at_queue(loss=0.02, visibility_s=1.0)
    for goal in (
        QueueGoal(delivery_s=0.15),
        QueueGoal(delivery_s=0.4, percentile=0.95),
        QueueGoal(delivery_s=0.3, percentile=0.9),
        QueueGoal(delivery_s=2.5, percentile=0.999),
    ):
        least = least_consumers(scenario, goal)
        assert goal.delivery_s is not None
        assert (
            predict(with_consumers(scenario, least), goal.percentile).percentile_s(goal.percentile) <= goal.delivery_s
        )
        try:
            fewer = predict(with_consumers(scenario, least - 1), goal.percentile).percentile_s(goal.percentile)
        except Infeasible:
            fewer = math.inf
        assert fewer > goal.delivery_s
    with pytest.raises(Infeasible, match=r"no number of consumers brings the mean delivery time to 0\.05 s"):
        least_consumers(scenario, QueueGoal(delivery_s=0.05))


def test_the_best_timeout_is_better_than_others_that_are_allowed() -> None:
    scenario = at_queue(loss=0.05)
    found = plan(scenario, QueueGoal(duplicates=0.01))
    assert found.best_visibility_s is not None
    best = timeout_cost(scenario, found.best_visibility_s)
    assert best.duplicates <= 0.0101
    for factor in (1.5, 3.0, 10.0):
        assert timeout_cost(scenario, factor * found.best_visibility_s).delivery_s > best.delivery_s
    assert timeout_cost(scenario, 0.7 * found.best_visibility_s).duplicates > 0.01


def test_a_scenario_survives_its_file() -> None:
    scenario = paper(6, 0.88, DeliveryOrder.IN_ORDER)
    assert ScenarioFile(scenario_text(scenario, remark="two\nlines"), name="f").scenario == scenario


FILE = "[arrivals]\nrate = 30\n[consumers]\ncount = 5\nservice_s = 0.1\n[queue]\nloss = 0.1\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loss", "losses", r"^f.toml:7: queue has no field 'losses'; it has order, visibility_s, timer, loss, link_s$"),
        ("0.1\n[queue]", "-1\n[queue]", r"^f.toml:5: consumers.service_s is -1, expected a number > 0"),
        ("loss = 0.1", "loss = 1", r"^f.toml:7: queue.loss is 1, expected a number < 1"),
        ("loss = 0.1", 'order = "random"', r"^f.toml:7: queue.order is 'random', expected out-of-order or in-order"),
        ("rate = 30", "", r"^f.toml:1: arrivals needs a rate"),
        ("count = 5", 'count = 5\ndistribution = "hyperexponential"\nservice_scv = 0.5', r"f.toml:5: .* take gamma"),
        ("loss = 0.1", "visibility_s = 0", r"f.toml:7: visibility_s is 0: .* give a time above 0"),
        ("rate = 30", "rate = ", r"^f.toml:2: "),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        ScenarioFile(FILE.replace(old, new), name="f.toml")
