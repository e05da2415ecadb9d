"""Plans of the reliable queue: what they choose, what they warn of, and the files they are made from."""

from __future__ import annotations

import math

import msgspec
import pytest
from tests.models.queue_scenarios import at_queue, paper, phase_of

from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.reliable_queue import Phase, QueueGoal, ServiceTime, TimerStart, plan, predict
from lavant.models.reliable_queue.planning import least_consumers, timeout_cost, with_consumers
from lavant.models.reliable_queue.scenario import DeliveryOrder, ScenarioFile, scenario_text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"arrival_scv": 2.1}, "with arrival scv 2.1 they"),
        ({"arrival_scv": 0.1}, "with arrival scv 0.1 they"),
        ({"loss": 0.13, "arrival_rate_per_s": 25.0}, "with loss 0.13 they"),
        ({"arrival_rate_per_s": 46.0}, "with utilisation 0.92 they"),
        (
            {"senders": Phase(count=4, service=ServiceTime(mean_s=0.1, scv=2.0)), "arrival_rate_per_s": 36.0},
            "with utilisations of 0.9 and 0.72 and scvs of 1, 2, 1 they",
        ),
        ({"arrival_rate_per_s": 10.0, "arrival_scv": 1.5}, "with utilisation 0.2 they"),
        ({"consumers": Phase(count=51, service=ServiceTime(mean_s=0.1, scv=3.0))}, "with service_scv 3, count 51 they"),
    ],
)
def test_a_plan_says_where_its_in_order_times_were_not_checked(changes: dict[str, object], named: str) -> None:
    senders = Phase(count=5, service=ServiceTime(mean_s=0.1))
    ordered = at_queue(senders=senders, order=DeliveryOrder.IN_ORDER, timer=TimerStart.SEND)
    for checked in (
        {"arrival_scv": 2.0, "loss": 0.12},
        {"arrival_rate_per_s": 10.0},
        {"arrival_rate_per_s": 44.0, "arrival_scv": 1.2},
    ):
        assert not plan(msgspec.structs.replace(ordered, **checked), QueueGoal()).warnings
    (warning,) = plan(msgspec.structs.replace(ordered, **changes), QueueGoal()).warnings
    assert named in warning
    (warning,) = plan(ordered, QueueGoal(delivery_s=2.0, percentile=0.95)).warnings
    assert "percentiles of in-order delivery times" in warning


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"arrival_scv": 2.1}, "with arrival scv 2.1 they"),
        ({"arrival_scv": 0.1}, "with arrival scv 0.1 they"),
        ({"loss": 0.13, "arrival_rate_per_s": 25.0}, "with loss 0.13 they"),
        ({"arrival_rate_per_s": 46.0}, "with utilisation 0.92 they"),
        ({"arrival_rate_per_s": 34.0}, "with utilisations of 0.85 and 0.68 and scvs of 1, 0.5, 1 they"),
        ({"consumers": phase_of(501, 0.1, 2.6)}, "with service_scv 2.6, count 501 they"),
    ],
)
def test_a_plan_says_where_its_out_of_order_times_were_not_checked(changes: dict[str, object], named: str) -> None:
    free = at_queue(senders=phase_of(4, 0.1, 0.5), arrival_rate_per_s=25.0, timer=TimerStart.SEND)
    if changes.get("arrival_rate_per_s") == 46.0:
        free = msgspec.structs.replace(free, senders=phase_of(40, 0.1, 0.5))
    for checked in ({}, {"arrival_scv": 2.0}, {"arrival_rate_per_s": 2.0, "arrival_scv": 0.2, "loss": 0.12}):
        assert not plan(msgspec.structs.replace(free, **checked), QueueGoal()).warnings
    (warning,) = plan(msgspec.structs.replace(free, **changes), QueueGoal()).warnings
    assert named in warning
    assert warning.startswith("out-of-order delivery times are within 5 % of simulations for arrival scv 0.2 to 2, ")


@pytest.mark.parametrize("rate_per_s", [1.0, 39.5])
def test_exponential_times_out_of_order_are_exact_at_any_load(rate_per_s: float) -> None:
    for senders in (None, phase_of(4, 0.1, 1.0)):
        for consumers in (phase_of(4, 0.1, 1.0), phase_of(60, 0.1, 1.0)):
            free = at_queue(senders=senders, consumers=consumers, arrival_rate_per_s=rate_per_s)
            assert not plan(free, QueueGoal()).warnings
    lognormal = at_queue(consumers=phase_of(4, 0.1, 1.0, "lognormal"), arrival_rate_per_s=39.5)
    (warning,) = plan(lognormal, QueueGoal()).warnings
    assert "with utilisation 0.9875 they may be 13% off" in warning
    assert "both phases" not in warning


def test_the_best_timeout_is_no_shorter_than_a_service() -> None:
    """One consumer alone repeats nothing, whatever the timeout; more consumers would."""
    alone = at_queue(arrival_rate_per_s=5.0, consumers=phase_of(1, 0.1, 1.0), loss=0.05, link_s=0.01)
    assert plan(alone, QueueGoal()).best_visibility_s == pytest.approx(0.12)


def test_a_plan_says_where_too_many_messages_come_twice() -> None:
    few, many = at_queue(visibility_s=0.3), at_queue(visibility_s=0.12, consumers=phase_of(6, 0.1, 1.0))
    assert not plan(few, QueueGoal()).warnings
    (warning,) = plan(many, QueueGoal()).warnings
    assert "predicted delivery times may be 50% too long" in warning


def test_an_unstable_phase_is_named_with_the_threads_that_it_needs() -> None:
    both = r"senders are too slow: 3 senders .* a count of at least 4; consumers are too slow: 3 .* at least 4$"
    with pytest.raises(Infeasible, match=both):
        predict(paper(3, 0.99))
    slow = msgspec.structs.replace(paper(4, 0.5), senders=None)
    with pytest.raises(Infeasible, match=r"consumers are too slow: 4 consumers .* lost and repeated.* at least 7"):
        predict(slow)
    assert predict(with_consumers(slow, 7)).consumers.utilisation < 1


def test_a_timeout_below_the_service_time_says_what_happens() -> None:
    scenario = at_queue(consumers=Phase(count=12, service=ServiceTime(mean_s=0.1)), visibility_s=0.05)
    warning, *_ = plan(scenario, QueueGoal()).warnings
    assert "below the mean service time of 0.1 s: " in warning
    assert "is processed 2." in warning


def test_an_acknowledgement_takes_its_time_over_the_link() -> None:
    near = at_queue(consumers=Phase(count=12, service=ServiceTime(mean_s=0.1)), visibility_s=0.2)
    far = msgspec.structs.replace(near, link_s=0.08)
    assert predict(far).attempts > 1.2 * predict(near).attempts
    assert not plan(near, QueueGoal()).warnings
    warning, *_ = plan(far, QueueGoal()).warnings
    assert "below the mean service time of 0.1 s and twice the link_s of 0.08 s: " in warning
    sent = msgspec.structs.replace(far, timer=TimerStart.SEND)
    assert not plan(sent, QueueGoal()).warnings
    (warning,) = plan(msgspec.structs.replace(sent, visibility_s=0.16), QueueGoal()).warnings
    assert "not above twice the link_s of 0.08 s" in warning


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
        ("[arrivals]\nrate = 30\n", "", r"^f.toml:1: the file needs a table \[arrivals\]"),
        ("count = 5", 'count = 5\ndistribution = "hyperexponential"\nservice_scv = 0.5', r"f.toml:5: .* take gamma"),
        ("loss = 0.1", "visibility_s = 0", r"f.toml:7: visibility_s is 0: .* give a time above 0"),
        ("rate = 30", "rate = ", r"^f.toml:2: "),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        ScenarioFile(FILE.replace(old, new), name="f.toml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival_rate_per_s": 0}, "arrival_rate_per_s must be a number above 0, got 0"),
        ({"arrival_rate_per_s": math.inf}, "arrival_rate_per_s must be a number above 0, got inf"),
        ({"arrival_scv": math.nan}, "arrival_scv must be a number from 0 on, got nan"),
        ({"loss": -0.1}, "loss must be a number from 0 to below 1, got -0.1"),
        ({"loss": 1.0}, "loss must be a number from 0 to below 1, got 1.0"),
        ({"visibility_s": math.inf}, "visibility_s must be a number from 0 on, got inf"),
        ({"link_s": "1"}, "link_s must be a number from 0 on, got 1"),
        ({"order": "fifo"}, "order must be one of out-of-order, in-order, got fifo"),
        ({"timer": None}, "timer must be one of receive, send, got None"),
    ],
)
def test_a_scenario_of_a_program_is_checked_as_one_of_a_file_is(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        at_queue(**changes)


def test_choices_may_be_given_as_texts() -> None:
    """A text is not taken for the other choice."""
    senders = phase_of(5, 0.1, 1.0)
    ordered = at_queue(senders=senders, order="in-order")
    assert ordered == at_queue(senders=senders, order=DeliveryOrder.IN_ORDER)
    assert predict(ordered).delivery_s > 1.3 * predict(at_queue(senders=senders)).delivery_s


@pytest.mark.parametrize(("count", "mean_s", "scv"), [(0, 0.1, 1.0), (2.5, 0.1, 1.0), (True, 0.1, 1.0), (1, 0.0, 1.0)])
def test_threads_that_cannot_be_are_refused(count: int, mean_s: float, scv: float) -> None:
    with pytest.raises(InvalidValue, match=r"(count|mean_s) must be a "):
        phase_of(count, mean_s, scv)


@pytest.mark.parametrize(
    "goal", [{"delivery_s": 0.0}, {"delivery_s": math.nan}, {"percentile": 1.0}, {"duplicates": 0}]
)
def test_goals_that_cannot_be_are_refused(goal: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match=f"got {next(iter(goal.values()))}"):
        QueueGoal(**goal)
