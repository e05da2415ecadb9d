"""Audits jobs from inside, while they run and at the end, with public queries only.

* For each queued or running task there is one message in the queue of its topic, and no other message.
* All attempts but the latest of such a task are over, and there are no more than allowed.
* Tasks have begun only where those before them are decided, and enough of them were done.
* In the end nothing is left: all jobs have ended, and the dead letters are those of the dead tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from lavant.broker.protocol.jobs import (
    DescribeJob,
    DescribeJobType,
    JobsListed,
    JobTypeView,
    JobView,
    ListJobs,
    TaskView,
)
from lavant.broker.protocol.queues import Peek, Peeked
from lavant.broker.workflows.definitions.definition import letters_of, queue_of
from lavant.broker.workflows.job import DEAD, DONE, QUEUED, RUNNING, SKIPPED, WAITING
from lavant.broker.workflows.machine import Jobs
from lavant.simulation.workflows.jobs import DEFINITIONS, SOURCES, TASKS, WORKFLOWS

PAGE = 1000
OVER = (DONE, SKIPPED, DEAD)


def all_jobs(jobs: Jobs, state: str = "") -> Iterator[JobView]:
    after: int | None = 0
    while after is not None:
        listed = jobs.handle(ListJobs(after, PAGE, state), 0)
        assert isinstance(listed, JobsListed)
        for summary in listed.jobs:
            view = jobs.handle(DescribeJob(summary.number), 0)
            assert isinstance(view, JobView)
            yield view
        after = listed.after


def bodies(jobs: Jobs, queue: str) -> list[bytes]:
    """Of all messages in a queue."""
    found: list[bytes] = []
    after = 0
    while True:
        peeked = jobs.handle(Peek(queue, PAGE, after), 0)
        assert isinstance(peeked, Peeked)
        if not peeked.messages:
            return found
        found += [message.body for message in peeked.messages]
        after = peeked.messages[-1].number


def whats_wrong(jobs: Jobs) -> str | None:
    """While jobs run."""
    expected: dict[str, list[bytes]] = {topic: [] for topic in WORKFLOWS.topics}
    for job in all_jobs(jobs, RUNNING):
        states = {task.name: task.state for task in job.tasks}
        if all(state in OVER for state in states.values()):
            return f"job {job.number} is running, but nothing is left of it: {states}"
        for task in job.tasks:
            if task.state in (QUEUED, RUNNING):
                expected[task.topic].append(f"{job.number}/{task.name}".encode())
            wrong = _wrong_with(job, task, states)
            if wrong is not None:
                return f"task {task.name!r} of job {job.number} ({job.job_type}) {wrong}"
    for topic, references in expected.items():
        there = bodies(jobs, queue_of(topic)) if jobs.exists(queue_of(topic)) else []
        if sorted(there) != sorted(references):
            return f"in the queue of topic {topic} are {sorted(there)}, there should be {sorted(references)}"
    return None


def whats_left(jobs: Jobs) -> str | None:
    """At the end."""
    for job in all_jobs(jobs, RUNNING):
        return f"job {job.number} ({job.job_type}) has not ended: {[(task.name, task.state) for task in job.tasks]}"
    dead: list[tuple[int, str]] = []
    for job in all_jobs(jobs):
        dead += [(job.number, task.name) for task in job.tasks if task.state == DEAD]
        if any(not attempt.outcome for task in job.tasks for attempt in task.attempts):
            return f"job {job.number} is {job.state}, but a task of it is running: {job.tasks}"
    letters: list[tuple[int, str]] = []
    for topic in WORKFLOWS.topics:
        if jobs.exists(letters_of(topic)):
            read = [json.loads(body) for body in bodies(jobs, letters_of(topic))]
            letters += [(letter["job"], letter["task"]) for letter in read]
    if sorted(letters) != sorted(dead):
        return f"there are dead letters of {sorted(letters)}, but dead are {sorted(dead)}"
    return _wrong_with_totals(jobs)


def _wrong_with(job: JobView, task: TaskView, states: dict[str, str]) -> str | None:
    definition = TASKS[job.job_type, task.name]
    sources = [states[source] for source in SOURCES[job.job_type, task.name]]
    if len(task.attempts) > definition.attempts:
        return f"was tried {len(task.attempts)} times, at most {definition.attempts} are allowed"
    if any(not attempt.outcome for attempt in task.attempts[:-1]):
        return f"is tried again before an attempt is over: {task.attempts}"
    if task.state in (QUEUED, RUNNING) and (not task.attempts or task.attempts[-1].outcome):
        return f"is {task.state}, but no attempt is open"
    if task.state == WAITING:
        return "waits, though all before it is decided" if all(state in OVER for state in sources) else None
    if any(state not in OVER for state in sources):
        return f"is {task.state}, though those before it are {sources}"
    if task.attempts and sources and (SKIPPED in sources if definition.join == "all" else set(sources) == {SKIPPED}):
        return f"was tried, though those before it are {sources}"
    return None


def _wrong_with_totals(jobs: Jobs) -> str | None:
    for name in DEFINITIONS:
        view = jobs.handle(DescribeJobType(name), 0)
        assert isinstance(view, JobTypeView)
        if view.running or view.submitted != view.completed + view.failed + view.cancelled:
            return f"the totals of {name} do not add up: {view}"
    return None
