"""Fitting a network to telemetry: what goes in as a known network comes out again."""

from __future__ import annotations

import pytest
from tests.models.telemetry import case_study_telemetry

from lavant.core.errors import InvalidValue
from lavant.core.estimation import EstimationConfig, Estimator, WindowEstimate
from lavant.core.telemetry import Observation, ObservationKind, telemetry_batch
from lavant.models.calibration import Fit, fit
from lavant.models.network import Network
from lavant.simulation.queueing.case_study import case_study


def fit_of(rows: list[Observation]) -> Fit:
    estimator = Estimator(EstimationConfig(window_ms=600_000, topics_overall=False))
    estimator.observe(telemetry_batch(rows))
    first: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.kind in (ObservationKind.ARRIVAL, ObservationKind.SERVICE):
            key, began_us = (row.job_type, row.topic), row.time_us - (row.duration_us or 0)
            first[key] = min(began_us, first.get(key, began_us))
    times = [row.time_us for row in rows if row.kind is ObservationKind.ARRIVAL]
    length_s = (max(times) - min(times)) / 1e6 if times else 0.0
    return fit(estimator.close(2**53), first, length_s=length_s)


def fitted(rows: list[Observation]) -> Network:
    return fit_of(rows).network


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
            rows.append(
                Observation(time_us=time_us, kind=ObservationKind.ARRIVAL, job_type="j", topic="A", publications=1)
            )
            rows.append(
                Observation(
                    time_us=time_us,
                    kind=ObservationKind.SERVICE,
                    job_type="j",
                    topic="A",
                    duration_us=seconds * 1_000_000,
                )
            )
    (topic,) = fitted(rows).topics
    assert topic.service_rate_per_s == pytest.approx(0.5)
    assert topic.service_scv == pytest.approx(0.25)


def test_without_arrivals_at_topics_as_a_server_writes_it_the_same_network_is_found() -> None:
    """A server knows when jobs arrive and end, and when tasks are worked on."""
    rows = [
        row
        for row in case_study_telemetry(hours=8.0, seed=1)
        if row.kind is not ObservationKind.ARRIVAL or not row.topic
    ]
    found, whole = fitted(rows), fitted(case_study_telemetry(hours=8.0, seed=1))
    assert found.topics == whole.topics
    assert [job.tasks for job in found.jobs] == [job.tasks for job in whole.jobs]
    for ours, theirs in zip(found.jobs, whole.jobs, strict=True):
        assert ours.arrival_rate_per_s == pytest.approx(theirs.arrival_rate_per_s, rel=0.01)
        assert ours.arrival_scv == theirs.arrival_scv


def test_jobs_that_have_not_ended_do_not_hide_visits() -> None:
    """Each job comes to A twice; of ten jobs four have ended and the others have not begun."""
    rows = [
        Observation(time_us=n * 1_000_000, kind=ObservationKind.ARRIVAL, job_type="j", publications=1)
        for n in range(1, 11)
    ]
    for n in range(1, 5):
        at_us = 20_000_000 * n
        rows += [
            Observation(time_us=at_us + k, kind=ObservationKind.SERVICE, job_type="j", topic="A", duration_us=1000)
            for k in (1, 2)
        ]
        rows.append(Observation(time_us=at_us + 3, kind=ObservationKind.RESPONSE, job_type="j", duration_us=3000))
    (job,) = fitted(rows).jobs
    assert [task.topic for task in job.tasks] == ["A", "A"]
    assert job.arrival_rate_per_s == pytest.approx(10 / 9)


def messages(topic: str, *, every_us: int, service_us: int | None) -> list[Observation]:
    rows = [
        Observation(time_us=n * every_us, kind=ObservationKind.ARRIVAL, topic=topic, publications=1) for n in range(100)
    ]
    if service_us is not None:
        rows += [
            Observation(
                time_us=n * every_us + service_us, kind=ObservationKind.SERVICE, topic=topic, duration_us=service_us
            )
            for n in range(100)
        ]
    return rows


def test_each_queue_of_messages_without_a_job_is_a_job_type_of_its_own() -> None:
    found = fit_of(
        [
            *messages("orders", every_us=100_000, service_us=50_000),
            *messages("letters", every_us=50_000, service_us=10_000),
            *messages("orders-dead", every_us=99_000, service_us=None),
            *messages("@access", every_us=100_000, service_us=None),
            Observation(time_us=5, kind=ObservationKind.SERVICE, topic="@match", duration_us=5),
        ]
    )
    assert found.left_out == ("orders-dead",)
    assert found.network.topic_names == ("letters", "orders")
    assert [[task.topic for task in job.tasks] for job in found.network.jobs] == [["letters"], ["orders"]]
    rates = [topic.service_rate_per_s for topic in found.network.topics]
    assert rates == pytest.approx([100.0, 20.0])


def test_a_queue_may_have_the_name_of_a_job_type() -> None:
    rows = [
        *messages("orders", every_us=100_000, service_us=50_000),
        *(
            Observation(time_us=n * 1000, kind=ObservationKind.ARRIVAL, job_type="orders", publications=1)
            for n in range(5)
        ),
        *(
            Observation(time_us=n * 1000, kind=ObservationKind.SERVICE, job_type="orders", topic="A", duration_us=5)
            for n in range(5)
        ),
    ]
    assert fitted(rows).job_names == ("orders", "messages of orders")


def test_telemetry_that_says_too_little_is_refused_with_what_is_missing() -> None:
    arrivals = [
        Observation(time_us=n * 1_000_000, kind=ObservationKind.ARRIVAL, job_type="j", topic="A", publications=1)
        for n in range(5)
    ]
    services = [
        Observation(time_us=n * 1_000_000, kind=ObservationKind.SERVICE, job_type="j", topic="A", duration_us=5)
        for n in range(5)
    ]
    none: list[WindowEstimate] = []
    with pytest.raises(InvalidValue, match="no telemetry to fit"):
        fit(none, {}, length_s=1.0)
    with pytest.raises(InvalidValue, match="no services were observed at A"):
        fitted(arrivals)
    with pytest.raises(InvalidValue, match="must span some time"):
        fitted(services)
    with pytest.raises(InvalidValue, match="no topic or queue was observed"):
        fitted(messages("orders-dead", every_us=1000, service_us=None))
    many = [
        Observation(time_us=n * 1000, kind=ObservationKind.ARRIVAL, job_type="j", topic="B", publications=1)
        for n in range(1, 1001)
    ]
    with pytest.raises(InvalidValue, match="would come to topic 'B' 200 times each"):
        fitted([*arrivals, *services, *many])
