"""Validates definitions: one that cannot work is refused, with location and reason.

Besides names and ranges it finds cycles, unreachable tasks, and joins that can never complete because they wait for two
branches whose conditions exclude each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import get_args

from lavant.broker.filters import Filter, intersects
from lavant.broker.queues.validation import check_range
from lavant.broker.workflows.definitions.definition import (
    ATTEMPTS_MAX,
    BACKOFF_MS_MAX,
    JOB_TIMEOUT_MS_MAX,
    JOB_TYPES_MAX,
    NAME_CHARACTERS_MAX,
    NEXT_MAX,
    TASK_TIMEOUT_MS_MAX,
    TASKS_MAX,
    TOPICS_MAX,
    JobDefinition,
    Join,
    OnFailure,
    TaskDefinition,
    Workflows,
)
from lavant.core.errors import FilterSyntaxError, InvalidValue, LimitExceeded
from lavant.core.validation.choices import check_choice

_NAME = re.compile(r"[A-Za-z0-9_-]+")
TASK_RANGES = {
    "attempts": (1, ATTEMPTS_MAX),
    "timeout_ms": (1, TASK_TIMEOUT_MS_MAX),
    "backoff_ms": (0, BACKOFF_MS_MAX),
    "backoff_ms_max": (0, BACKOFF_MS_MAX),
}
_CHOICES = {"join": get_args(Join), "on_failure": get_args(OnFailure)}

Needs = dict[str, tuple[str, ...]]
"""By task: the conditions that its result must meet."""


def check(workflows: Workflows) -> None:
    """Raise unless jobs of all these types can be run."""
    _check_count("topics", workflows.topics, TOPICS_MAX)
    _check_count("job types", workflows.jobs, JOB_TYPES_MAX)
    _check_distinct("topic", workflows.topics)
    _check_distinct("job type", [job.name for job in workflows.jobs])
    for topic in workflows.topics:
        check_name("a topic", topic)
    for job in workflows.jobs:
        check_job(job, workflows.topics)


def check_job(job: JobDefinition, topics: Iterable[str]) -> None:
    check_name("a job type", job.name)
    where = f"job type {job.name!r}"
    check_range(f"timeout_ms of {where}", job.timeout_ms, 1, JOB_TIMEOUT_MS_MAX)
    if not job.tasks:
        raise InvalidValue(f"{where} has no tasks; give it at least one")
    _check_count(f"tasks of {where}", job.tasks, TASKS_MAX)
    _check_count(f"arrows of {where}", [arrow for task in job.tasks for arrow in task.next], NEXT_MAX)
    _check_distinct(f"task of {where}:", [task.name for task in job.tasks])
    known = set(topics)
    names = {task.name: task for task in job.tasks}
    for task in job.tasks:
        _check_task(task, where, known, names)
    _check_start(job, names)
    order = _in_order(job)
    _check_reachable(job, order)
    _check_joins(job, order)


def check_name(what: str, name: str) -> None:
    if len(name) > NAME_CHARACTERS_MAX:
        raise LimitExceeded(
            f"the name of {what} has {len(name)} characters, at most {NAME_CHARACTERS_MAX} are allowed; "
            f"shorten {name[:NAME_CHARACTERS_MAX]!r}…"
        )
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(f"the name of {what} consists of letters, digits and any of _ - (not {name!r})")


@lru_cache(maxsize=1 << 12)
def condition(text: str) -> Filter | None:
    """The condition of an arrow as a filter; None if it has none. Cached, since types are compiled again at each
    recovery.
    """
    return Filter.parse(text) if text else None


def _check_task(task: TaskDefinition, where: str, topics: set[str], names: dict[str, TaskDefinition]) -> None:
    check_name(f"a task of {where}", task.name)
    here = f"task {task.name!r} of {where}"
    if task.topic not in topics:
        raise InvalidValue(f"{here} goes to topic {task.topic!r}, but there are only {_listed(topics)}")
    for field, (lowest, highest) in TASK_RANGES.items():
        check_range(f"{field} of {here}", getattr(task, field), lowest, highest)
    for field, choices in _CHOICES.items():
        check_choice(f"{field} of {here}", getattr(task, field), choices)
    for arrow in task.next:
        if arrow.task not in names:
            raise InvalidValue(f"{here} is followed by {arrow.task!r}, but there are only {_listed(names)}")
        try:
            when = condition(arrow.when)
        except FilterSyntaxError as error:
            raise InvalidValue(f"the condition from {here} to {arrow.task!r}: {error}") from None
        if when is not None and not when.conjunctions:
            raise InvalidValue(f"{here} is never followed by {arrow.task!r}: no result fulfils {arrow.when!r}")
    _check_distinct(f"arrow from {here} to", [arrow.task for arrow in task.next])


def _check_start(job: JobDefinition, names: dict[str, TaskDefinition]) -> None:
    where = f"job type {job.name!r}"
    if not job.start:
        raise InvalidValue(f"{where} has no start; name the tasks with which it begins")
    _check_distinct(f"start of {where}:", job.start)
    for name in job.start:
        if name not in names:
            raise InvalidValue(f"{where} starts with {name!r}, but there are only {_listed(names)}")
    for task in job.tasks:
        for arrow in task.next:
            if arrow.task in job.start:
                raise InvalidValue(
                    f"{where} starts with {arrow.task!r}, which also follows {task.name!r}; a task runs once, "
                    "so take it out of one, or give the second visit of its topic a name of its own"
                )


def _in_order(job: JobDefinition) -> list[TaskDefinition]:
    """Tasks in topological order (depth first); raises for a cycle and shows it."""
    names = {task.name: task for task in job.tasks}
    done: dict[str, TaskDefinition] = {}
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = " → ".join([*path[path.index(name) :], name])
            raise InvalidValue(
                f"job type {job.name!r} has a cycle: {circle}; a task runs once, so give each further visit of a "
                "topic a task of its own"
            )
        path.append(name)
        for arrow in names[name].next:
            visit(arrow.task)
        path.pop()
        done[name] = names[name]

    for task in job.tasks:
        visit(task.name)
    return list(reversed(done.values()))


def _check_reachable(job: JobDefinition, order: Sequence[TaskDefinition]) -> None:
    reached = set(job.start)
    for task in order:
        if task.name in reached:
            reached.update(arrow.task for arrow in task.next)
    for task in job.tasks:
        if task.name not in reached:
            raise InvalidValue(
                f"nothing leads to task {task.name!r} of job type {job.name!r}; name it in `start`, or as the next of "
                "another task"
            )


def _check_joins(job: JobDefinition, order: Sequence[TaskDefinition]) -> None:
    """Collects the conditions under which each task starts, along all paths to it.

    After a join of `any`, only the conditions common to all branches are certain. So a refused type can really never
    complete; an accepted one may still be impossible in ways that depend on several results at once.
    """
    ways: dict[str, list[Needs]] = {task.name: [{}] if task.name in job.start else [] for task in job.tasks}
    for task in order:
        needs = _common(ways[task.name]) if task.join == "any" else _together(ways[task.name])
        clash = _clash(needs)
        if clash is not None:
            source, one, other = clash
            raise InvalidValue(
                f"task {task.name!r} of job type {job.name!r} can never start: it waits for branches that need both "
                f"{one!r} and {other!r} of the result of {source!r}; if one branch is enough, set its join to 'any'"
            )
        for arrow in task.next:
            own = needs.get(task.name, ())
            ways[arrow.task].append({**needs, task.name: (*own, arrow.when)} if arrow.when else needs)


def _together(ways: Sequence[Needs]) -> Needs:
    merged: Needs = {}
    for way in ways:
        for source, conditions in way.items():
            merged[source] = tuple(dict.fromkeys([*merged.get(source, ()), *conditions]))
    return merged


def _common(ways: Sequence[Needs]) -> Needs:
    first, *others = ways
    shared = {
        source: tuple(each for each in conditions if all(each in other.get(source, ()) for other in others))
        for source, conditions in first.items()
    }
    return {source: conditions for source, conditions in shared.items() if conditions}


def _clash(needs: Needs) -> tuple[str, str, str] | None:
    """The task whose result must meet two conditions that exclude each other, and these."""
    for source, conditions in needs.items():
        for place, one in enumerate(conditions):
            for other in conditions[:place]:
                if _exclude_each_other(other, one):
                    return source, other, one
    return None


@lru_cache(maxsize=1 << 13)
def _exclude_each_other(one: str, other: str) -> bool:
    """Cached, because the same two meet again at every later task."""
    return not intersects(Filter.parse(one), Filter.parse(other))


def _check_count(what: str, values: Sequence[object], most: int) -> None:
    if len(values) > most:
        raise LimitExceeded(f"there are {len(values)} {what}, at most {most} are allowed")


def _check_distinct(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidValue(f"{what} {name!r} occurs twice; once is enough")
        seen.add(name)


def _listed(names: Iterable[str]) -> str:
    """At most a dozen of them."""
    ordered = sorted(names)
    return ", ".join(map(repr, ordered[:12])) + (" …" if len(ordered) > 12 else "")
