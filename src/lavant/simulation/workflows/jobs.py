"""The job types of the scenario: the three of the paper's case study, and one with every feature."""

from __future__ import annotations

from lavant.broker.workflows.definitions.definition import JobDefinition, TaskDefinition
from lavant.broker.workflows.definitions.toml_file import read_workflows

WORKFLOWS = read_workflows(
    """
    topics = ["A", "B", "C", "D"]

    [jobs.type-1]
    start = "load"
    timeout_ms = 60_000
    tasks.load = { topic = "A", next = "fit", timeout_ms = 1_000, backoff_ms = 100 }
    tasks.fit = { topic = "B", next = "draw", timeout_ms = 1_500, backoff_ms = 0 }
    tasks.draw = { topic = "D", timeout_ms = 1_000, backoff_ms = 200 }

    [jobs.type-2]
    start = "load"
    timeout_ms = 4_000
    tasks.load = { topic = "A", next = "draw", timeout_ms = 800, backoff_ms = 50 }
    tasks.draw = { topic = "D", next = "draw-again", timeout_ms = 800, backoff_ms = 50 }
    tasks.draw-again = { topic = "D", timeout_ms = 800, backoff_ms = 50 }

    [jobs.type-3]
    start = "convert"
    timeout_ms = 60_000
    tasks.convert = { topic = "C", next = "draw", timeout_ms = 1_000, attempts = 2 }
    tasks.draw = { topic = "D", timeout_ms = 1_000, attempts = 2 }

    [jobs.all]
    start = ["load", "convert"]
    timeout_ms = 60_000
    tasks.load = { topic = "A", next = ["left", "right"], timeout_ms = 1_000, backoff_ms = 100 }
    tasks.convert = { topic = "C", next = "join", attempts = 1, timeout_ms = 1_000, on_failure = "continue" }
    tasks.left = { topic = "B", next = "join", timeout_ms = 1_000, backoff_ms = 100 }
    tasks.right = { topic = "B", next = "join", timeout_ms = 1_500, backoff_ms = 100 }
    tasks.join.topic = "D"
    tasks.join.timeout_ms = 1_000
    tasks.join.next = [{ task = "fine", when = "score >= 5" }, { task = "coarse", when = "score < 5" }, "log", "note"]
    tasks.fine = { topic = "B", next = ["store", "note"], timeout_ms = 1_000, attempts = 2, backoff_ms = 100 }
    tasks.note = { topic = "C", timeout_ms = 1_000, backoff_ms = 100 }
    tasks.coarse = { topic = "C", next = "store", timeout_ms = 1_000, attempts = 2, backoff_ms = 100 }
    tasks.store = { topic = "D", join = "any", timeout_ms = 1_000, backoff_ms = 100 }
    tasks.log = { topic = "A", timeout_ms = 1_000, attempts = 1, on_failure = "continue" }
    """
)
DEFINITIONS: dict[str, JobDefinition] = {job.name: job for job in WORKFLOWS.jobs}
TASKS: dict[tuple[str, str], TaskDefinition] = {
    (job.name, task.name): task for job in WORKFLOWS.jobs for task in job.tasks
}
"""By job type and name."""
SOURCES: dict[tuple[str, str], dict[str, str]] = {
    (job.name, task.name): {
        source.name: arrow.when for source in job.tasks for arrow in source.next if arrow.task == task.name
    }
    for job in WORKFLOWS.jobs
    for task in job.tasks
}
"""The predecessors of a task, with their conditions."""
