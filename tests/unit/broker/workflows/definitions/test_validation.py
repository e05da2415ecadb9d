"""Definitions that cannot work are refused, and the error says where and why."""

from __future__ import annotations

import pytest

from lavant.broker.workflows.definitions.definition import NextTask
from lavant.broker.workflows.definitions.toml_file import convert_workflows, read_workflows
from lavant.core.errors import InvalidValue, LimitExceeded


def job(tasks: str, start: str = '"a"', topics: str = '["T"]', **more: object) -> str:
    settings = "".join(f"{name} = {value}\n" for name, value in more.items())
    return f"topics = {topics}\n[jobs.j]\nstart = {start}\n{settings}{tasks}"


def refusal(text: str) -> str:
    with pytest.raises(InvalidValue) as caught:
        read_workflows(text)
    return str(caught.value)


def test_the_three_job_types_of_the_paper_are_read() -> None:
    [twice] = read_workflows(
        """
        topics = ["A", "D"]
        [jobs.type-2]
        start = "load"
        tasks.load = { topic = "A", next = "denoise" }
        tasks.denoise = { topic = "D", next = "render" }
        tasks.render = { topic = "D" }
        """
    ).jobs
    assert [(task.name, task.topic, task.next) for task in twice.tasks] == [
        ("load", "A", (NextTask("denoise"),)),
        ("denoise", "D", (NextTask("render"),)),
        ("render", "D", ()),
    ]


def test_what_is_left_out_has_the_default_and_what_is_written_counts() -> None:
    [one, other] = (
        read_workflows(job('tasks.a = { topic = "T", next = "b" }\ntasks.b = { topic = "T", attempts = 7 }'))
        .jobs[0]
        .tasks
    )
    assert (one.attempts, other.attempts, one.join, one.on_failure) == (3, 7, "all", "fail")


def test_a_circle_is_shown() -> None:
    tasks = """
    tasks.a = { topic = "T", next = "b" }
    tasks.b = { topic = "T", next = ["c", "d"] }
    tasks.c = { topic = "T" }
    tasks.d = { topic = "T", next = "b" }
    """
    assert "job type 'j' has a cycle: b → d → b;" in refusal(job(tasks))


def test_a_task_that_follows_itself_is_a_circle() -> None:
    assert "cycle: b → b" in refusal(job('tasks.a = { topic = "T" }\ntasks.b = { topic = "T", next = "b" }'))


def test_a_topic_that_is_not_there_is_named_with_those_that_are() -> None:
    message = refusal(job('tasks.a = { topic = "U" }', topics='["T", "S"]'))
    assert message == "task 'a' of job type 'j' goes to topic 'U', but there are only 'S', 'T'"


def test_a_task_that_is_not_there_is_named() -> None:
    assert "task 'a' of job type 'j' is followed by 'b'" in refusal(job('tasks.a = { topic = "T", next = "b" }'))
    assert "job type 'j' starts with 'b'" in refusal(job('tasks.a = { topic = "T" }', start='"b"'))


def test_a_task_that_nothing_leads_to_is_named() -> None:
    tasks = 'tasks.a = { topic = "T" }\ntasks.b = { topic = "T", next = "c" }\ntasks.c = { topic = "T" }'
    assert "nothing leads to task 'b' of job type 'j'" in refusal(job(tasks))


def test_a_start_that_follows_another_task_would_run_twice() -> None:
    tasks = 'tasks.a = { topic = "T", next = "b" }\ntasks.b = { topic = "T" }'
    assert "starts with 'b', which also follows 'a'" in refusal(job(tasks, start='["a", "b"]'))


BRANCHES = """
tasks.a = {{ topic = "T", next = [{{ task = "b", when = "{left}" }}, {{ task = "c", when = "{right}" }}] }}
tasks.b = {{ topic = "T", next = "{through}" }}
tasks.c = {{ topic = "T", next = "e" }}
tasks.d = {{ topic = "T", next = "e" }}
tasks.e = {{ topic = "T", join = "{join}" }}
"""


def branches(left: str, right: str, join: str = "all", through: str = "e") -> str:
    return job(BRANCHES.format(left=left, right=right, join=join, through=through), start='["a", "d"]')


def test_a_join_of_branches_that_exclude_each_other_can_never_complete() -> None:
    message = refusal(branches("x > 1", "x <= 1"))
    assert "task 'e' of job type 'j' can never start" in message
    assert "both 'x <= 1' and 'x > 1' of the result of 'a'" in message
    assert "set its join to 'any'" in message


def test_such_branches_are_found_through_other_tasks() -> None:
    assert "can never start" in refusal(branches("x = 1", "x = 2", through="d").replace('["a", "d"]', '"a"'))


def test_a_join_of_branches_that_may_both_be_taken_is_accepted() -> None:
    read_workflows(branches("x > 1", "x > 2"))
    read_workflows(branches("x > 1", "y <= 1"))


def test_a_join_of_any_completes_with_either() -> None:
    read_workflows(branches("x > 1", "x <= 1", join="any"))


def test_behind_a_join_of_any_only_what_both_branches_need_is_sure() -> None:
    tasks = """
    tasks.a = { topic = "T", next = [{ task = "b", when = "x = 1" }, { task = "c", when = "x = 2" }, { task = "e", when = "x < 9" }] }
    tasks.b = { topic = "T", next = "d" }
    tasks.c = { topic = "T", next = "d" }
    tasks.d = { topic = "T", join = "any", next = "e" }
    tasks.e = { topic = "T" }
    """  # noqa: E501
    read_workflows(job(tasks))
    assert "can never start" in refusal(job(tasks.replace('join = "any", ', "")))


@pytest.mark.parametrize(
    ("condition", "shown"),
    [("score >", "expected"), ("x > 1 and x < 0", "is never followed by 'b'")],
)
def test_a_condition_that_cannot_be_read_or_fulfilled_is_shown(condition: str, shown: str) -> None:
    tasks = f'tasks.a = {{ topic = "T", next = [{{ task = "b", when = "{condition}" }}] }}\ntasks.b = {{ topic = "T" }}'
    message = refusal(job(tasks))
    assert shown in message
    assert "task 'a'" in message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topics = [", "not valid TOML"),
        ("topics = " + "[" * 20_000, "nested too deeply"),
        ('topics = ["T"]\njobs = {}\ntasks = 1', "unknown field `tasks`"),
        (job('tasks.a = { topic = "T", nexd = "b" }'), "task 'a' of job type 'j' cannot be read"),
        (job('tasks.a = { topic = "T", join = "most" }'), "Invalid enum value 'most'"),
        (
            job('tasks.a = { topic = "T", attempts = 0 }'),
            "attempts of task 'a' of job type 'j' must be between 1 and 20",
        ),
        (job('tasks.a = { topic = "T", attempts = 21 }'), "between 1 and 20, got 21"),
        (job('tasks.a = { topic = "T", timeout_ms = 0 }'), "timeout_ms of task 'a'"),
        (job('tasks.a = { topic = "T", backoff_ms = -1 }'), "backoff_ms of task 'a'"),
        (job('tasks.a = { topic = "T" }', timeout_ms=0), "timeout_ms of job type 'j'"),
        (job("tasks = {}"), "job type 'j' has no tasks"),
        (job('tasks.a = { topic = "T" }', start="[]"), "job type 'j' has no start"),
        (job('tasks.a = { topic = "T" }', start='["a", "a"]'), "start of job type 'j': 'a' occurs twice"),
        (job('tasks.a = { topic = "T", next = ["b", "b"] }\ntasks.b = { topic = "T" }'), "'b' occurs twice"),
        (job('tasks.a = { topic = "T" }', topics='["T", "T"]'), "topic 'T' occurs twice"),
        (job('tasks."a b" = { topic = "T" }', start='"a b"'), "letters, digits and any of _ - (not 'a b')"),
        (job('tasks.a = { topic = "T.T" }', topics='["T.T"]'), "the name of a topic"),
        (job('tasks.a = { topic = "T" }').replace("jobs.j", 'jobs."a/b"'), "the name of a job type"),
    ],
)
def test_an_error_says_what_is_wrong(text: str, shown: str) -> None:
    assert shown in refusal(text)


def task(**more: object) -> dict[str, object]:
    return {"topic": "T", **more}


def wide(count: int) -> dict[str, object]:
    tasks = {f"t{place}": task() for place in range(count)}
    return {"topics": ["T"], "jobs": {"j": {"start": list(tasks), "tasks": tasks}}}


def test_sizes_are_bounded() -> None:
    convert_workflows(wide(64))
    with pytest.raises(LimitExceeded, match="65 tasks of job type 'j', at most 64"):
        convert_workflows(wide(65))
    with pytest.raises(LimitExceeded, match="1001 topics"):
        convert_workflows({"topics": [f"t{place}" for place in range(1001)], "jobs": {}})
    with pytest.raises(LimitExceeded, match="65 characters"):
        convert_workflows({"topics": ["t" * 65], "jobs": {}})
    with pytest.raises(LimitExceeded, match="use several files"):
        read_workflows("#" * (4 << 20) + "#")


def test_many_arrows_are_bounded() -> None:
    tasks = {f"t{place}": task(next=[f"t{later}" for later in range(place + 1, 60)]) for place in range(60)}
    with pytest.raises(LimitExceeded, match="1770 arrows of job type 'j', at most 1000"):
        convert_workflows({"topics": ["T"], "jobs": {"j": {"start": "t0", "tasks": tasks}}})


def test_a_longest_chain_is_accepted() -> None:
    tasks = {f"t{place}": task(next=[f"t{place + 1}"]) if place < 63 else task() for place in range(64)}
    convert_workflows({"topics": ["T"], "jobs": {"j": {"start": "t0", "tasks": tasks}}})
