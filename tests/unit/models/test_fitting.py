"""Fitting a network to telemetry: what goes in as a known network comes out again."""

from __future__ import annotations

import pytest
from tests.models.telemetry import case_study_telemetry

from lavant.core.errors import InvalidValue
from lavant.core.estimation import EstimationConfig, Estimator, WindowEstimate
from lavant.core.telemetry import Kind, Observation, telemetry_batch
from lavant.models.fitting import fit
from lavant.models.network import Network
from lavant.simulation.network.case_study import case_study


def fitted(rows: list[Observation]) -> Network:
    estimator = Estimator(EstimationConfig(window_ms=600_000, topics_overall=False))
    estimator.observe(telemetry_batch(rows))
    first: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.kind is Kind.ARRIVAL:
            key = (row.job_type, row.topic)
            first[key] = min(row.time_us, first.get(key, row.time_us))
    times = [row.time_us for row in rows if row.kind is Kind.ARRIVAL]
    length_s = (max(times) - min(times)) / 1e6 if times else 0.0
    return fit(estimator.close(2**53), first, length_s=length_s)


@pytest.mark.parametrize("whole_jobs", [True, False])
def test_a_network_is_found_in_its_telemetry(whole_jobs: bool) -> None:
    """8 hours of the case study: rates to 5 %, variabilities to 0.1; with and without rows of jobs as a whole."""
    found, true = fitted(case_study_telemetry(hours=8.0, seed=1, whole_jobs=whole_jobs)), case_study()
    assert found.topic_names == true.topic_names
    assert [[t.topic for t in job.tasks] for job in found.jobs] == [[t.topic for t in job.tasks] for job in true.jobs]
    for ours, theirs in zip(found.topics, true.topics, strict=True):
        assert ours.service_rate_per_s == pytest.approx(theirs.service_rate_per_s, rel=0.05)
        assert ours.service_scv == pytest.approx(theirs.service_scv, abs=0.08)
    for job, original in zip(found.jobs, true.jobs, strict=True):
        assert job.arrival_rate_per_s == pytest.approx(original.arrival_rate_per_s, rel=0.05)
        assert job.arrival_scv == pytest.approx(original.arrival_scv, abs=0.1)


def test_service_moments_are_those_of_all_windows_together() -> None:
    """Two windows with constant services of 1 s and 3 s: mean 2 s, variance 1 s²."""
    rows = []
    for window, seconds in ((0, 1), (1, 3)):
        for n in range(10):
            time_us = (600 * window + 10 * n) * 1_000_000
            rows.append(Observation(time_us=time_us, kind=Kind.ARRIVAL, job_type="j", topic="A", publications=1))
            rows.append(
                Observation(
                    time_us=time_us, kind=Kind.SERVICE, job_type="j", topic="A", duration_us=seconds * 1_000_000
                )
            )
    (topic,) = fitted(rows).topics
    assert topic.service_rate_per_s == pytest.approx(0.5)
    assert topic.service_scv == pytest.approx(0.25)


def test_publications_without_a_job_type_are_one_of_their_own() -> None:
    rows = case_study_telemetry(hours=1.0, seed=2, whole_jobs=False)
    rows = [row for row in rows if row.job_type == "3"]
    merged = [Observation(**{f: getattr(row, f) for f in row.__struct_fields__} | {"job_type": ""}) for row in rows]
    assert fitted(merged).job_names == ("jobs",)


def test_telemetry_that_says_too_little_is_refused_with_what_is_missing() -> None:
    arrivals = [
        Observation(time_us=n * 1_000_000, kind=Kind.ARRIVAL, job_type="j", topic="A", publications=1) for n in range(5)
    ]
    services = [
        Observation(time_us=n * 1_000_000, kind=Kind.SERVICE, job_type="j", topic="A", duration_us=5) for n in range(5)
    ]
    none: list[WindowEstimate] = []
    with pytest.raises(InvalidValue, match="no telemetry to fit"):
        fit(none, {}, length_s=1.0)
    with pytest.raises(InvalidValue, match="no services were observed at A"):
        fitted(arrivals)
    with pytest.raises(InvalidValue, match="must span some time"):
        fitted(services)
    many = [
        Observation(time_us=n * 1000, kind=Kind.ARRIVAL, job_type="j", topic="B", publications=1)
        for n in range(1, 1001)
    ]
    with pytest.raises(InvalidValue, match="would come to topic 'B' 200 times each"):
        fitted([*arrivals, *services, *many])
