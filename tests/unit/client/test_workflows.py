"""Workflows in Python are those of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant import Workflow
from lavant.broker.workflows.definitions.toml_file import read_workflows
from lavant.client.workflows import workflows_of
from lavant.core.errors import InvalidValue

FILE = Path(__file__).resolve().parents[3] / "examples" / "workflow-fork-join.toml"


def test_python_and_toml_say_the_same() -> None:
    image = Workflow("image", timeout_s=172_800)
    load = image.task("load", attempts=5, backoff_s=0.5)
    left = image.task("left", topic="fit", after=load, timeout_s=60)
    right = image.task("right", topic="fit", after=load, timeout_s=60)
    image.task("thumbnail", topic="draw", after=load, attempts=1, on_failure="continue")
    join = image.task("join", topic="draw", after=[left, right])
    review = image.task("review", after=join.when("score < 0.8"), timeout_s=43_200, attempts=1)
    image.task("publish", after=[join.when("score >= 0.8"), review.when("accepted = true")], join="any")
    ours, [theirs] = workflows_of([image]), read_workflows(FILE.read_text()).jobs
    [mine] = ours.jobs
    assert set(ours.topics) == set(read_workflows(FILE.read_text()).topics)
    assert (mine.name, mine.start, mine.timeout_ms) == (theirs.name, theirs.start, theirs.timeout_ms)

    def described(job: object) -> dict[str, object]:
        return {
            task.name: (task.topic, sorted((each.task, each.when) for each in task.next), *_options(task))
            for task in job.tasks  # type: ignore[attr-defined]
        }

    def _options(task: object) -> tuple[object, ...]:
        fields = ("join", "attempts", "timeout_ms", "backoff_ms", "backoff_ms_max", "on_failure")
        return tuple(getattr(task, field) for field in fields)

    assert described(mine) == described(theirs)


def test_mistakes_are_named() -> None:
    job = Workflow("j")
    first = job.task("a")
    with pytest.raises(InvalidValue, match="has a task 'a' already"):
        job.task("a")
    with pytest.raises(InvalidValue, match="another job type"):
        Workflow("k").task("b", after=first)
    with pytest.raises(InvalidValue, match="attempts must be at least 1, got 0"):
        job.task("c", attempts=0)
    with pytest.raises(InvalidValue, match=r"timeout_s must be between 0\.001 and 43200, got 50000"):
        job.task("c", timeout_s=50_000)
    with pytest.raises(InvalidValue, match="backoff_s must be between 0 and 900, got 1000"):
        job.task("c", backoff_s=1000)
    with pytest.raises(InvalidValue, match=r"timeout_s must be between 0\.001 and 604800, got 0"):
        Workflow("none", timeout_s=0)
    with pytest.raises(InvalidValue, match="backoff_s_max must be a number of seconds, got 'long'"):
        job.task("c", backoff_s_max="long")  # type: ignore[arg-type]
    job.task("c", after=first, join="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="must be 'all' or 'any', got 'some'"):
        workflows_of([job])
