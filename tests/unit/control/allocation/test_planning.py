"""MinTime and MinCost: goals, limits, prices, and what cannot be done."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from tests.models.networks import case_study, fork_and_join

from lavant.control.allocation import Budget, Cost, Limits, Linear, Power, Prices, System, Target, min_cost, min_time
from lavant.control.allocation.min_cost import measured_s, meets, reach
from lavant.control.allocation.min_time import spend
from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic

CASE = System(network=case_study())


def test_topics_that_lack_consumers_come_first_and_their_reason_says_so() -> None:
    steps = min_time(CASE, Budget(additional=5)).steps
    assert [math.isfinite(step.wip) for step in steps] == [False, False, False, True, True, True]
    assert "gets work for 2.55 consumers and has 1" in steps[1].decision.reason
    assert "saves most for its price" in steps[-1].decision.reason
    assert steps[-1].decision.figures["gain"] == pytest.approx(steps[-2].wip - steps[-1].wip)


def test_each_step_says_what_the_model_predicts() -> None:
    for step in min_time(CASE, Budget(additional=7)).steps[3:]:
        found = Model(case_study(), refined=True).evaluate(step.consumers)
        assert step.wip == pytest.approx(float(found.wip[0]))
        assert step.response_s == pytest.approx(float(found.response_s[0]))
        assert step.cost == sum(step.consumers)
        assert len(step.response_of_job_s) == 3


def test_a_budget_that_cannot_serve_the_load_says_what_would() -> None:
    with pytest.raises(
        Infeasible, match=r"needs at least 7 consumers: A 2, B 1, C 1, D 3, at a cost of 7; the budget of 2"
    ):
        min_time(CASE, Budget(additional=2))
    plan = spend(CASE, Budget(additional=2))
    assert plan.consumers == (1, 1, 1, 3)
    assert not plan.reached
    assert "cannot serve the load" in plan.decision.reason


def test_a_limit_below_the_load_is_named() -> None:
    system = System(network=case_study(), limits=(Limits(), Limits(), Limits(), Limits(most=2)))
    said = r"topic 'D' needs at least 3 consumers for a load of 2\.55, its limit is 2"
    with pytest.raises(Infeasible, match=said):
        min_time(system, Budget(additional=50))
    with pytest.raises(Infeasible, match=said):
        min_cost(system, Target(response_s=50.0))


def test_a_target_below_the_service_times_is_refused_with_what_is_possible() -> None:
    with pytest.raises(Infeasible, match=r"mean response of all jobs cannot be 20 s: .* it is 33.8\d s"):
        min_cost(CASE, Target(response_s=20.0))


def test_out_of_reach_consumers_come_only_as_long_as_they_help() -> None:
    plan = reach(CASE, Target(response_s=20.0))
    assert not plan.reached
    assert 9 <= sum(plan.consumers) < 20


def test_an_unknown_job_type_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no job type 'x'; there are 1, 2, 3"):
        min_cost(CASE, Target(response_s=50.0, job="x"))


def test_limits_are_kept_and_the_least_is_where_it_starts() -> None:
    system = System(network=case_study(), limits=(Limits(least=3, most=3), Limits(), Limits(), Limits(most=3)))
    plan = min_time(system, Budget(additional=8))
    assert plan.consumers[0] == 3
    assert plan.consumers[3] == 3
    assert plan.steps[0].consumers == (3, 1, 1, 1)


def test_a_budget_is_money_not_consumers() -> None:
    system = System(network=case_study(), costs=(Linear(2.0), Linear(0.5), Linear(1.0), Linear(1.0)))
    plan = min_time(system, Budget(additional=5.5))
    assert system.cost(plan.consumers) <= system.cost((1, 1, 1, 1)) + 5.5
    assert plan.consumers == (2, 3, 1, 3) or system.cost(plan.consumers) > system.cost((1, 1, 1, 1)) + 5.0


def test_a_dear_topic_gets_fewer_consumers() -> None:
    cheap = min_cost(CASE, Target(response_s=42.0)).consumers
    dear = min_cost(System(network=case_study(), costs=(Power(1.0, 3.0), *(Linear(),) * 3)), Target(response_s=42.0))
    assert dear.consumers[0] <= cheap[0]
    assert dear.reached


def test_a_target_for_one_job_type_looks_at_that_one() -> None:
    plan = min_cost(CASE, Target(response_s=45.0, job="1"))
    found = measured_s(Model(case_study(), refined=True), plan.consumers, Target(response_s=45.0, job="1"))
    assert found <= 45.0
    assert plan.consumers[1] >= min_cost(CASE, Target(response_s=45.0)).consumers[1]


def test_a_percentile_needs_more_than_a_mean() -> None:
    mean, p95 = (min_cost(CASE, Target(response_s=75.0, percentile=p)) for p in (None, 0.95))
    assert sum(p95.consumers) > sum(mean.consumers)


def test_a_target_that_all_topics_but_one_need_not_meet_still_serves_the_whole_load() -> None:
    plan = min_cost(CASE, Target(response_s=40.0, job="3"))
    assert plan.reached
    assert plan.consumers == (2, 1, 1, 3)


def test_where_limits_leave_another_topic_overloaded_a_target_for_one_job_type_is_not_reached() -> None:
    system = System(network=case_study(), limits=(Limits(most=1), Limits(), Limits(), Limits()))
    plan = reach(system, Target(response_s=500.0, job="3"))  # job type 3 never visits A
    assert not plan.reached
    assert "do not allow enough consumers" in plan.decision.reason
    with pytest.raises(Infeasible, match=r"topic 'A' needs at least 2 consumers for a load of 1\.55, its limit is 1"):
        min_cost(system, Target(response_s=500.0, job="3"))


def test_nothing_can_be_taken_away_from_a_plan_for_a_target() -> None:
    for target in (Target(response_s=45.0), Target(response_s=90.0, percentile=0.95), Target(response_s=40.0, job="2")):
        plan = min_cost(CASE, target)
        for j, m in enumerate(plan.consumers):
            fewer = (*plan.consumers[:j], m - 1, *plan.consumers[j + 1 :])
            if m > 1:
                assert not meets(Model(case_study(), refined=True), CASE, fewer, target)


def test_for_a_fork_the_target_is_about_the_critical_path() -> None:
    system = System(network=fork_and_join())
    plan = min_cost(system, Target(response_s=5.0))
    assert plan.steps[-1].response_s <= 5.0
    assert plan.steps[-1].wip > 5.0  # one job a second: the tasks' times add up to more


def test_what_counts_is_the_gain_for_its_price() -> None:
    """A gains a little more from a consumer than B, but costs three times as much."""
    topics = tuple(Topic(name=n, service_rate_per_s=1.0) for n in "AB")
    jobs = tuple(ModelJobType.along([n], name=n, arrival_rate_per_s=r) for n, r in (("A", 0.71), ("B", 0.7)))
    network = Network(topics=topics, jobs=jobs)
    assert min_time(System(network=network), Budget(additional=1)).consumers == (2, 1)
    system = System(network=network, costs=(Linear(3.0), Linear(1.0)))
    steps = min_time(system, Budget(additional=4)).steps
    assert [step.consumers for step in steps] == [(1, 1), (1, 2), (2, 2)]


def test_a_valuable_topic_is_served_first() -> None:
    def network(value: float) -> Network:
        topics = tuple(Topic(name=n, service_rate_per_s=1.0, value=v) for n, v in (("A", 1.0), ("B", value)))
        jobs = tuple(ModelJobType.along([n], name=n, arrival_rate_per_s=r) for n, r in (("A", 0.8), ("B", 0.7)))
        return Network(topics=topics, jobs=jobs)

    assert min_time(System(network=network(1.0)), Budget(additional=1)).consumers == (2, 1)
    assert min_time(System(network=network(9.0)), Budget(additional=1)).consumers == (1, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Linear(0.0), "must be positive, got 0"),
        (lambda: Power(1.0, 0.5), "exponent of a convex cost"),
        (lambda: Prices((2.0, 1.0)), "consumer 2 costs 1.0, less than the 2.0"),
        (lambda: Prices(()), "at least one"),
        (lambda: Limits(least=3, most=2), "least ≤ most"),
        (lambda: Budget(additional=-1.0), "from 0 on, got -1"),
        (lambda: Target(response_s=0.0), "must be positive"),
        (lambda: Target(response_s=1.0, percentile=95.0), "fraction such as 0.95, got 95"),
        (lambda: System(network=case_study(), costs=(Linear(),)), "1 costs for 4 topics"),
    ],
)
def test_what_makes_no_goal_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidValue, match=said):
        make()


@pytest.mark.parametrize("cost", [Linear(1.5), Power(2.0, 1.3), Prices((1.0, 1.5, 4.0))])
def test_costs_are_convex_and_rise(cost: Cost) -> None:
    values = [cost.of(m) for m in range(8)]
    rises = [b - a for a, b in pairwise(values)]
    assert values[0] == 0
    assert all(rise > 0 for rise in rises)
    assert all(b >= a - 1e-12 for a, b in pairwise(rises))
