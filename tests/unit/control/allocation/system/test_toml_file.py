"""System files: what they say, what is wrong and where, and changes in a few words."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.models.networks import case_study, fork_and_join

from lavant.control.allocation import Budget, Limits, Linear, Power, Prices, Target
from lavant.control.allocation.system.toml_file import SystemFile
from lavant.control.allocation.system.toml_text import system_text
from lavant.core.errors import InvalidValue
from lavant.models.network import Network

EXAMPLE = Path(__file__).parents[5] / "examples" / "allocation-case-study.toml"
TEXT = EXAMPLE.read_text(encoding="utf-8")


def test_the_example_is_the_case_study() -> None:
    file = SystemFile(TEXT, name="s.toml")
    network = file.system.network
    assert network.topic_names == ("A", "B", "C", "D")
    assert network.offered_load == pytest.approx(case_study().offered_load)
    assert [[task.topic for task in job.tasks] for job in network.jobs] == [
        [task.topic for task in job.tasks] for job in case_study().jobs
    ]
    assert [job.arrival_scv for job in network.jobs] == [job.arrival_scv for job in case_study().jobs]
    assert file.goal == Target(response_s=50.0)
    assert not file.system.refined


def test_everything_that_can_be_said_is_understood() -> None:
    file = SystemFile(
        """
        rates_per = "hour"
        [[topic]]
        name = "A"
        service_rate = 3600
        cost = [1, 2]
        consumers_min = 2
        consumers_max = 7
        value = 3
        [[topic]]
        name = "B"
        service_rate = 7200
        cost = {price = 2, exponent = 1.5}
        [[job]]
        name = "fork"
        arrival_rate = 36
        value = 0.5
        tasks.read = {topic = "A"}
        tasks.left = {topic = "B", after = ["read"]}
        tasks.right = {topic = "B", after = ["read"]}
        [goal]
        budget = 4.5
        """,
        name="s.toml",
    )
    a, b = file.system.network.topics
    assert (a.service_rate_per_s, a.value, b.service_rate_per_s, b.service_scv) == (1.0, 3.0, 2.0, 1.0)
    assert file.system.costs == (Prices((1.0, 2.0)), Power(2.0, 1.5))
    assert file.system.limits == (Limits(least=2, most=7), Limits())
    (job,) = file.system.network.jobs
    assert (job.arrival_rate_per_s, job.value, job.is_route) == (0.01, 0.5, False)
    assert [task.after for task in job.tasks] == [(), ("read",), ("read",)]
    assert file.goal == Budget(additional=4.5)
    assert file.system.refined


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("service_rate = 3.7", "service_rate = -3.7", "17: service_rate of topic 'B' is -3.7, expected a number > 0"),
        (
            "service_rate = 3.7",
            "service_rate = 'x'",
            "17: service_rate of topic 'B' is 'x', expected a number, got a text",
        ),
        ("service_rate = 3.7", "rate = 3.7", "17: topic 'B' has no field 'rate'"),
        ("service_rate = 6.7\n", "", "20: topic 'C' needs a service_rate"),
        ("service_rate = 3.7", "service_rate = inf", "15: service_rate_per_s of topic 'B' must be positive"),
        ("service_scv = 0.4", "service_scv = -1", "23: service_scv of topic 'C' is -1, expected a number >= 0"),
        ("service_scv = 0.4", "cost = [2, 1]", "23: consumer 2 costs 1.0, less than the 2.0"),
        ("service_scv = 0.4", "consumers_max = 0", "23: consumers_max of topic 'C' is 0, expected a whole number >= 1"),
        (
            "service_scv = 0.4",
            "consumers_min = 5\nconsumers_max = 3",
            "24: consumers of a topic must be 1 ≤ least ≤ most",
        ),
        ('name = "B"', 'name = "A"', "10: topic 'A' occurs 2 times"),
        ('["C", "D"]', '["C", "E"]', "44: job type '3' goes to topic 'E', which is none of A, B, C, D"),
        ('route = ["C", "D"]', "", "42: job type '3' needs a route or tasks, and not both"),
        ('route = ["C", "D"]', "route = []", "44: job type '3' has no tasks"),
        (
            'route = ["C", "D"]',
            'tasks.x = {topic = "A", after = ["y"]}\ntasks.y = {topic = "B", after = ["x"]}',
            "44: tasks of job type '3' have a cycle: x → y → x",
        ),
        ('route = ["C", "D"]', 'tasks.x = {topic = "Q"}', "44: job type '3' goes to topic 'Q'"),
        ('rates_per = "minute"', 'rates_per = "day"', "7: rates_per is 'day', expected second, minute or hour"),
        ("response_s = 50", "response_s = 50\nbudget = 3", "48: a goal is a response_s or a budget, and not both"),
        ("response_s = 50", "response_s = 50\npercentile = 95", "50: goal.percentile is 95, expected a number < 1"),
        ("response_s = 50", "budget = 5\npercentile = 0.9", "50: percentile and job belong to a response_s"),
        (
            "response_s = 50",
            'response_s = 50\njob = "9"',
            "50: the goal is about job type '9', which is none of 1, 2, 3",
        ),
        ("response_s = 50", "response_s = ", "49: Invalid value"),
        ("[goal]", "[gaol]", "48: the file has no field 'gaol'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidValue) as caught:
        SystemFile(TEXT.replace(old, new), name="s.toml")
    assert str(caught.value).startswith(f"s.toml:{said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "attribute", "expected"),
    [
        ("arrival_rate.1=4", lambda f: f.system.network.jobs[0].arrival_rate_per_s * 60, 4.0),
        ("lambda.1=x2", lambda f: f.system.network.jobs[0].arrival_rate_per_s * 60, 6.0),
        ("lambda.*=x2", lambda f: f.system.network.arrival_rate_per_s * 60, 19.0),
        ("mu.D=10", lambda f: f.system.network.topics[3].service_rate_per_s * 60, 10.0),
        ("ca2.2=0", lambda f: f.system.network.jobs[1].arrival_scv, 0.0),
        ("cs2.A=x3", lambda f: f.system.network.topics[0].service_scv, 0.99),
        ("cost.B=x2", lambda f: f.system.costs[1], Linear(2.0)),
        ("consumers_max.C=3", lambda f: f.system.most[2], 3),
        (" response_s = 40 ", lambda f: f.goal, Target(response_s=40.0)),
        ("percentile=0.95", lambda f: f.goal, Target(response_s=50.0, percentile=0.95)),
        ("job=2", lambda f: f.goal, Target(response_s=50.0, job="2")),
        ("budget=6", lambda f: f.goal, Budget(additional=6.0)),
    ],
)
def test_a_change_changes_what_it_names(change: str, attribute: object, expected: object) -> None:
    assert callable(attribute)
    file = SystemFile(TEXT, name="s.toml")
    found = attribute(file.with_changes([change]))
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert file.system == SystemFile(TEXT, name="s.toml").system  # the file itself is as it was


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("lambda", "--what-if 'lambda' is not PARAMETER.NAME=VALUE"),
        ("lambda.1=", "is not PARAMETER.NAME=VALUE"),
        ("lambda=4", "there are arrival_rate.NAME"),
        ("response_s.A=4", "there are arrival_rate.NAME"),
        ("speed.A=4", "there are arrival_rate.NAME"),
        ("lambda.9=3", "there is no job '9'; there are 1, 2, 3"),
        ("mu.A=fast", "'fast' is neither a number nor x and a number"),
        ("budget=x2", "budget is None now, which cannot be multiplied"),
        ("lambda.1=-4", "s.toml:33 (with lambda.1=-4): arrival_rate of job '1' is -4.0, expected a number > 0"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: str, said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        SystemFile(TEXT, name="s.toml").with_changes([change])
    assert said in str(caught.value)


@pytest.mark.parametrize("network", [case_study(), fork_and_join()], ids=["routes", "fork"])
@pytest.mark.parametrize("rates_per", ["second", "minute", "hour"])
def test_a_network_that_is_written_is_read_again(network: Network, rates_per: str) -> None:
    text = system_text(network, rates_per=rates_per, remark="two\nlines")
    found = SystemFile(text, name="s.toml").system.network
    assert found.offered_load == pytest.approx(network.offered_load, rel=1e-4)
    assert [job.tasks for job in found.jobs] == [job.tasks for job in network.jobs]
