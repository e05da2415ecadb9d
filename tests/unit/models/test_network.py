"""Networks: what is refused, and the model's properties that hold for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.networks import case_study, fork_and_join, random_allocation, random_network

from lavant.core.errors import InvalidValue
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, ModelTask, Network, Topic
from lavant.models.prediction import predict
from lavant.models.response_times import ResponseTimes
from lavant.models.sensitivity import sensitivity

networks = st.integers(0, 10_000).map(random_network)


def decomposed(network: Network, consumers: list[int]) -> list[float]:
    """ca² of each topic: the equations of Appendix A as a linear system, solved at once. Routes only."""
    visits = [(i, k, task.topic) for i, job in enumerate(network.jobs) for k, task in enumerate(job.tasks)]
    number = {visit[:2]: n for n, visit in enumerate(visits)}
    rate = dict(zip(network.topic_names, network.topic_rates_per_s, strict=True))
    share = [network.jobs[i].arrival_rate_per_s / rate[topic] for i, _, topic in visits]
    matrix, right = np.eye(len(visits)), np.zeros(len(visits))
    for n, (i, k, _) in enumerate(visits):
        if k == 0:
            right[n] = network.jobs[i].arrival_scv
            continue
        before = number[i, k - 1]
        place = network.topic_names.index(visits[before][2])
        topic, m, p = network.topics[place], consumers[place], share[before]
        rho2 = min(1.0, rate[topic.name] / (topic.service_rate_per_s * m)) ** 2
        for other, (_, _, name) in enumerate(visits):
            if name == topic.name:
                matrix[n, other] -= p * (1 - rho2) * share[other]
        matrix[n, before] -= (1 - p) ** 2
        right[n] = p * (rho2 + rho2 / math.sqrt(m) * (topic.service_scv - 1)) + p * (1 - p)
    scvs = np.linalg.solve(matrix, right)
    return [
        float(sum(p * scv for p, scv, (_, _, name) in zip(share, scvs, visits, strict=True) if name == topic))
        for topic in network.topic_names
    ]


@settings(max_examples=60)
@given(networks, st.integers(0, 1000))
def test_sweeps_find_the_solution_of_the_equations_of_decomposition(network: Network, seed: int) -> None:
    consumers = random_allocation(network, seed, utilisation=(0.3, 1.0))
    found = Model(network).evaluate(consumers)
    assert found.topic_scv[0] == pytest.approx(decomposed(network, consumers), rel=1e-9)


@settings(max_examples=40)
@given(networks, st.booleans(), st.integers(0, 1000))
def test_many_allocations_at_once_are_each_one_by_one(network: Network, refined: bool, seed: int) -> None:
    model = Model(network, refined=refined)
    rows = np.random.default_rng(seed).integers(1, 9, (17, len(network.topics)))
    together = model.evaluate(rows)
    for row, wip in zip(rows, together.wip, strict=True):
        assert model.evaluate(row).wip[0] == wip


@settings(max_examples=40)
@given(networks, st.integers(0, 1000))
def test_rates_in_rows_are_networks_of_their_own(network: Network, seed: int) -> None:
    random = np.random.default_rng(seed)
    consumers = random_allocation(network, seed)
    rates = random.uniform(0.1, 1.0, (5, len(network.jobs)))
    found = Model(network).evaluate(consumers, arrival_rates_per_s=rates)
    for row, wip in zip(rates, found.wip, strict=True):
        assert Model(network.with_arrival_rates(row)).evaluate(consumers).wip[0] == pytest.approx(wip)


@settings(max_examples=40)
@given(networks, st.integers(0, 1000))
def test_little_s_law_joins_topics_and_jobs(network: Network, seed: int) -> None:
    found = predict(Model(network), random_allocation(network, seed))
    by_jobs = sum(job.arrival_rate_per_s * p.tasks_s for job, p in zip(network.jobs, found.jobs, strict=True))
    assert by_jobs == pytest.approx(found.wip)
    assert found.response_s == pytest.approx(found.wip / network.arrival_rate_per_s)


def test_values_weigh_topics_and_job_types() -> None:
    plain = case_study()
    topics = tuple(Topic(name=t.name, service_rate_per_s=t.service_rate_per_s, service_scv=t.service_scv,
                         value=2.0 if t.name == "A" else 1.0) for t in plain.topics)  # fmt: skip
    model = Model(Network(topics=topics, jobs=plain.jobs))
    columns = model.evaluate([2, 2, 1, 4])
    assert model.weighted_wip(columns)[0] == pytest.approx(columns.wip[0] + columns.requests[0, 0])


def test_a_job_type_without_value_weighs_nothing() -> None:
    jobs = tuple(
        ModelJobType(name=j.name, arrival_rate_per_s=j.arrival_rate_per_s, arrival_scv=j.arrival_scv, tasks=j.tasks,
                value=0.0 if j.name != "3" else 1.0) for j in case_study().jobs)  # fmt: skip
    model = Model(Network(topics=case_study().topics, jobs=jobs))
    columns = model.evaluate([2, 2, 1, 4])
    expected = columns.requests[0, 2] + columns.requests[0, 3] * 3.0 / 13.0
    assert model.weighted_wip(columns)[0] == pytest.approx(expected)
    unstable = model.evaluate([1, 1, 1, 4])
    assert math.isfinite(model.weighted_wip(unstable)[0])


def test_topics_that_are_not_stable_make_the_network_infinite_but_not_their_neighbours() -> None:
    found = predict(Model(case_study()), (1, 2, 1, 4))
    assert found.wip == math.inf
    assert not found.stable
    assert [topic.requests == math.inf for topic in found.topics] == [True, False, False, False]
    assert [job.response_s == math.inf for job in found.jobs] == [True, True, False]
    times = ResponseTimes(Model(case_study()), (1, 2, 1, 4))
    assert times.percentile_s(0.95) == math.inf
    assert math.isfinite(times.percentile_s(0.95, "3"))


def test_sensitivities_are_the_slopes_of_the_model() -> None:
    model, consumers = Model(case_study(), refined=True), [2, 2, 1, 4]
    found = sensitivity(model, consumers)
    rates = np.array([job.arrival_rate_per_s for job in case_study().jobs])
    for i, slope in enumerate(found.wip_per_arrival_rate):
        more = rates.copy()
        more[i] *= 1.001
        rise = model.evaluate(consumers, arrival_rates_per_s=more).wip[0] - model.evaluate(consumers).wip[0]
        assert slope == pytest.approx(rise / (0.001 * rates[i]), rel=0.01)
    assert all(slope < 0 for slope in found.wip_per_service_rate)
    assert found.bottleneck == "A"
    assert found.headroom == pytest.approx(2 * 4.2 / 6.5)
    assert found.wip_saved_by_consumer[0] == max(found.wip_saved_by_consumer)


def test_a_fork_is_faster_than_its_tasks_one_after_the_other_and_slower_than_its_longest_way() -> None:
    found = predict(Model(fork_and_join(), refined=True), (2, 3, 3, 2))
    visit = {topic.topic: topic.response_s for topic in found.topics}
    longest = visit["A"] + max(visit["B"], visit["C"]) + visit["D"]
    assert longest < found.jobs[0].response_s < found.jobs[0].tasks_s


A, B = Topic(name="A", service_rate_per_s=1.0), Topic(name="B", service_rate_per_s=1.0)
ONE = ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Topic(name="A", service_rate_per_s=-1.0), "service_rate_per_s of topic 'A' must be positive"),
        (lambda: Topic(name="A", service_rate_per_s=math.nan), "must be positive"),
        (lambda: Topic(name="A", service_rate_per_s=1.0, service_scv=-0.1), "service_scv of topic 'A'"),
        (lambda: ModelJobType.along(["A"], name="1", arrival_rate_per_s=0.0), "arrival_rate_per_s of job type '1'"),
        (lambda: ModelJobType.along([], name="1", arrival_rate_per_s=1.0), "has no tasks"),
        (lambda: Network(topics=(A, A), jobs=(ONE,)), "topic 'A' occurs 2 times"),
        (lambda: Network(topics=(B,), jobs=(ONE,)), "goes to topic 'A'; there are B"),
        (lambda: Network(topics=(A,), jobs=()), "got 1 and 0"),
        (
            lambda: ModelJobType(
                name="1", arrival_rate_per_s=1.0, tasks=(ModelTask("x", "A", ("y",)), ModelTask("y", "A", ("x",)))
            ),
            "have a cycle: x → y → x",
        ),
        (
            lambda: ModelJobType(name="1", arrival_rate_per_s=1.0, tasks=(ModelTask("x", "A", ("z",)),)),
            "comes after 'z'",
        ),
        (lambda: Model(case_study()).evaluate([0, 1, 1, 1]), "between 1 and 100000 consumers, got 0"),
        (lambda: Model(case_study()).evaluate([1, 1, 1]), "shape"),
        (lambda: ResponseTimes(Model(case_study()), (2, 2, 1, 4)).percentile_s(95), "fraction between 0 and 1"),
        (lambda: ResponseTimes(Model(case_study()), (2, 2, 1, 4)).mean_s("9"), "no job type '9'; there are 1, 2, 3"),
    ],
)
def test_what_cannot_be_modelled_is_refused_with_the_reason(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidValue, match=said.replace("'", ".")):
        make()
