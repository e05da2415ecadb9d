"""Draws a job type as text."""

from __future__ import annotations

from lavant.broker.workflows.definitions.definition import JobDefinition, NextTask, TaskDefinition

BRANCH, LAST, BESIDE, BELOW = "├─", "└─", "│  ", "   "


def draw(job: JobDefinition) -> list[str]:
    """Each task with its topic, and the tasks that follow; a task drawn further up is only named.

    >>> from lavant.broker.workflows.definitions.toml_file import read_workflows
    >>> [job] = read_workflows('''
    ... topics = ["A", "B", "D"]
    ... [jobs.tiles]
    ... start = "load"
    ... tasks.load = { topic = "A", next = ["left", "right"] }
    ... tasks.left = { topic = "B", next = "join" }
    ... tasks.right = { topic = "B", next = "join" }
    ... tasks.join = { topic = "D", next = [{ task = "repair", when = "holes > 0" }] }
    ... tasks.repair = { topic = "B" }
    ... ''').jobs
    >>> print("\\n".join(draw(job)))
    load (A)
    ├─► left (B) ─► join (D, after all of 2) ─ holes > 0 ► repair (B)
    └─► right (B) ─► join ↑
    """
    return _Drawing(job).lines


class _Drawing:
    def __init__(self, job: JobDefinition) -> None:
        self.lines: list[str] = []
        self._tasks = {task.name: task for task in job.tasks}
        self._sources = {
            name: sum(arrow.task == name for task in job.tasks for arrow in task.next) for name in self._tasks
        }
        self._drawn: set[str] = set()
        for name in job.start:
            self._add(self._tasks[name], "", "")

    def _add(self, task: TaskDefinition, before: str, indent: str) -> None:
        """Continue the line while there is one way, and below it add a line for each of several ways."""
        line = before + self._label(task)
        while len(task.next) == 1:
            [arrow] = task.next
            task = self._tasks[arrow.task]
            is_known = task.name in self._drawn
            line += f" {_arrow(arrow)} {self._label(task)}"
            if is_known:
                self.lines.append(line)
                return
        self.lines.append(line)
        for place, arrow in enumerate(task.next, start=1):
            self._branch(arrow, indent, is_last=place == len(task.next))

    def _branch(self, arrow: NextTask, indent: str, *, is_last: bool) -> None:
        target = self._tasks[arrow.task]
        before = f"{indent}{LAST if is_last else BRANCH}{_arrow(arrow)[1:]} "
        if target.name in self._drawn:
            self.lines.append(before + self._label(target))
        else:
            self._add(target, before, indent + (BELOW if is_last else BESIDE))

    def _label(self, task: TaskDefinition) -> str:
        if task.name in self._drawn:
            return f"{task.name} ↑"
        self._drawn.add(task.name)
        sources = self._sources[task.name]
        join = f", after {task.join} of {sources}" if sources > 1 else ""
        return f"{task.name} ({task.topic}{join})"


def _arrow(arrow: NextTask) -> str:
    return f"─ {arrow.when} ►" if arrow.when else "─►"
