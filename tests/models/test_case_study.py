"""The case study of the allocation paper: figures that were computed with independent code, to the last digit given."""

from __future__ import annotations

import pytest
from tests.models.networks import case_study

from lavant.control.allocation import Budget, System, Target, min_cost, min_time
from lavant.models.evaluation import Model
from lavant.models.prediction import predict
from lavant.simulation.queueing import DistributionFamily, simulate

TABLE: dict[tuple[int, ...], tuple[float, tuple[float, float, float], float, tuple[float, float]]] = {
    (2, 1, 1, 3): (10.343, (97.3, 65.6, 33.0), 65.32, (59.08, 0.24)),
    (2, 1, 1, 4): (8.503, (88.8, 48.7, 24.5), 53.70, (49.30, 0.16)),
    (2, 2, 1, 4): (6.737, (53.4, 48.7, 24.5), 42.55, (40.66, 0.07)),
    (3, 2, 1, 4): (5.969, (46.3, 41.6, 24.5), 37.70, (36.38, 0.03)),
}
"""Allocation: WIP, response of types 1 to 3 and of all in seconds, simulated response of all and its half-width."""

PAPER = System(network=case_study(), refined=False)


@pytest.mark.parametrize("consumers", TABLE)
def test_the_model_gives_the_figures_of_the_case_study(consumers: tuple[int, ...]) -> None:
    wip, of_jobs, overall, _ = TABLE[consumers]
    found = predict(Model(case_study()), consumers)
    assert round(found.wip, 3) == wip
    assert tuple(round(job.response_s, 1) for job in found.jobs) == of_jobs
    assert round(found.response_s, 2) == overall


@pytest.mark.parametrize("consumers", TABLE)
def test_the_simulation_gives_the_simulated_responses_within_both_confidence_intervals(
    consumers: tuple[int, ...],
) -> None:
    """95 % intervals; 600,000 jobs give half-widths of 0.06 to 0.5 s."""
    mean, half_width = TABLE[consumers][3]
    found = simulate(case_study(), consumers, jobs=600_000, seed=3).response_s
    assert found.half_width < 0.6
    assert abs(found.mean - mean) < found.half_width + half_width, found


def test_the_refinement_is_nearer_to_the_simulation_than_the_paper_on_every_line() -> None:
    for consumers, (_, _, overall, (simulated, _)) in TABLE.items():
        refined = predict(Model(case_study(), refined=True), consumers).response_s
        assert abs(refined - simulated) < abs(overall - simulated)


def test_other_families_with_the_same_moments_give_nearly_the_same_response() -> None:
    """Two moments are what the model knows; lognormal times instead of gamma move the response by less than 2 %."""
    gamma = simulate(case_study(), (2, 2, 1, 4), jobs=200_000, seed=5).response_s.mean
    lognormal = simulate(
        case_study(),
        (2, 2, 1, 4),
        jobs=200_000,
        seed=5,
        arrivals=DistributionFamily.LOGNORMAL,
        services=DistributionFamily.LOGNORMAL,
    ).response_s.mean
    assert lognormal == pytest.approx(gamma, rel=0.02)


def test_min_time_takes_the_path_of_the_paper() -> None:
    steps = min_time(PAPER, Budget(additional=6)).steps
    shown = ["".join(map(str, step.consumers)) for step in steps]
    assert shown == ["1111", "1112", "1113", "2113", "2114", "2214", "3214"]


def test_min_cost_meets_fifty_seconds_with_five_more_consumers() -> None:
    plan = min_cost(PAPER, Target(response_s=50.0))
    assert plan.consumers == (2, 2, 1, 4)
    assert plan.added == 5


def test_the_burst_of_the_paper_gets_the_paper_s_allocation() -> None:
    """Section VI-F: a budget of 5 at the high rates gives (2, 2, 1, 4); at the low ones one consumer each will do."""
    assert min_time(PAPER, Budget(additional=5)).consumers == (2, 2, 1, 4)
    quiet = predict(Model(case_study((0.5, 1.0, 0.5))), (1, 1, 1, 1))
    assert quiet.response_s == pytest.approx(50.32, abs=0.01)


def test_the_unit_of_time_does_not_matter() -> None:
    """Eq. 2 as printed has a stray arrival rate in it, and would fail here."""
    per_minute = case_study()
    per_second = case_study((180.0, 210.0, 180.0))
    faster = tuple(type(t)(name=t.name, service_rate_per_s=60 * t.service_rate_per_s, service_scv=t.service_scv)
                   for t in per_second.topics)  # fmt: skip
    scaled = Model(type(per_second)(topics=faster, jobs=per_second.jobs))
    assert scaled.evaluate([2, 2, 1, 4]).wip[0] == pytest.approx(Model(per_minute).evaluate([2, 2, 1, 4]).wip[0])
