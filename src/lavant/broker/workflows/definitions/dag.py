"""The graph of a job type: which tasks follow a task that is done.

Nguyen and Nahrstedt (see `definition`), Section II: the brokers of the control plane keep a mapping table for each job
type, from a task ("From") to the next ("To"); the job invoker looks up the first task, consumers the following ones.
Here the machine looks them up when a task is reported, so no consumer can forget to pass a job on. Beyond the paper, an
arrow may have a condition on the result, and a task may have several predecessors.

Every arrow is decided once: taken or not. A task without a taken arrow (or, with a join of `all`, with one that is not
taken) is skipped, and so are all arrows that leave it. So every task of a job is eventually decided, and nothing waits
for a branch that is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lavant.broker.filters import Filter
from lavant.broker.workflows.definitions.definition import JobDefinition, TaskDefinition
from lavant.broker.workflows.definitions.validation import condition
from lavant.core.publications.attributes import AttributeValue


class DagRow(NamedTuple):
    """One row of the table."""

    job: str
    from_: str | None
    """None where a job begins."""
    to: str | None
    """None where a job, or one branch of it, ends."""
    when: str
    """The condition, if there is one."""


class DagStep:
    """A task of a job type, with precomputed lookups."""

    __slots__ = ("arrows", "definition", "index", "needed", "reference")

    def __init__(self, index: int, definition: TaskDefinition, arrows: tuple[tuple[int, Filter | None], ...]) -> None:
        self.index = index
        self.definition = definition
        self.arrows = arrows
        """Indexes of the tasks that may follow, and their conditions."""
        self.needed = 0
        """Number of arrows that lead here."""
        self.reference = b"/" + definition.name.encode()
        """The text that follows the job number in its message."""

    def starts(self, taken: int) -> bool:
        """Whether it starts, given the number of taken arrows once all are decided."""
        return taken > 0 if self.definition.join == "any" else taken == self.needed


class JobType:
    """A job type from which jobs can be started.

    >>> from lavant.broker.workflows.definitions.toml_file import read_workflows
    >>> [job] = read_workflows('''
    ... topics = ["A", "D"]
    ... [jobs.twice]
    ... start = "load"
    ... tasks.load = { topic = "A", next = ["draw", { task = "mend", when = "holes > 0" }] }
    ... tasks.mend = { topic = "D" }
    ... tasks.draw = { topic = "D" }
    ... ''').jobs
    >>> twice = JobType(job)
    >>> twice.next_of("load", {"holes": 2}), twice.next_of("load", {})
    (['draw', 'mend'], ['draw'])
    """

    __slots__ = ("by_name", "definition", "starts", "steps")

    def __init__(self, definition: JobDefinition) -> None:
        self.definition = definition
        self.by_name = {task.name: index for index, task in enumerate(definition.tasks)}
        self.steps = tuple(
            DagStep(index, task, tuple((self.by_name[arrow.task], condition(arrow.when)) for arrow in task.next))
            for index, task in enumerate(definition.tasks)
        )
        for step in self.steps:
            for target, _ in step.arrows:
                self.steps[target].needed += 1
        self.starts = tuple(self.by_name[name] for name in definition.start)

    @property
    def name(self) -> str:
        return self.definition.name

    def next_of(self, task: str, attributes: Mapping[str, AttributeValue]) -> list[str]:
        """The tasks that follow when the result has these attributes."""
        arrows = self.steps[self.by_name[task]].arrows
        return [self.steps[target].definition.name for target, when in arrows if is_taken(when, attributes)]

    def rows(self) -> list[DagRow]:
        """The mapping table of this job type."""
        name = self.name
        rows = [DagRow(name, None, self.steps[index].definition.name, "") for index in self.starts]
        for task in self.definition.tasks:
            rows += [DagRow(name, task.name, arrow.task, arrow.when) for arrow in task.next]
            if not task.next:
                rows.append(DagRow(name, task.name, None, ""))
        return rows


def is_taken(when: Filter | None, attributes: Mapping[str, AttributeValue]) -> bool:
    return when is None or when.matches(attributes)
