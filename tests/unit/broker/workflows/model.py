"""Jobs, told once more: slowly, without queues, heaps or counters, from the facts alone.

For each job it keeps what was tried and what came of it. Which tasks are to run follows from that, by looking at the
whole definition again at every step.
"""

from __future__ import annotations

from collections.abc import Iterator

from lavant.broker.filters import Filter
from lavant.broker.protocol.jobs import AttemptView, Result
from lavant.broker.workflows.definitions.definition import JobDefinition, TaskDefinition


class Try:
    def __init__(self, queued_ms: int, visible_ms: int) -> None:
        self.queued_ms = queued_ms
        self.visible_ms = visible_ms
        self.started_ms = 0
        self.worker = ""
        self.deadline_ms = 0
        self.ended_ms = 0
        self.outcome = ""
        self.reason = ""

    def view(self) -> AttemptView:
        return AttemptView(self.queued_ms, self.started_ms, self.worker, self.ended_ms, self.outcome, self.reason)


class ModelJob:
    def __init__(self, number: int, definition: JobDefinition, now_ms: int) -> None:
        self.number = number
        self.tasks = {task.name: task for task in definition.tasks}
        self.start = definition.start
        self.deadline_ms = now_ms + definition.timeout_ms
        self.tries: dict[str, list[Try]] = {task: [] for task in self.tasks}
        self.results: dict[str, Result] = {}
        """Of tasks that are over, and let the job go on."""
        self.dead: set[str] = set()
        self.state = "running"
        self.queue_what_may_run(now_ms)

    # ── what follows from the facts ───────────────────────────────────────────────────────────────────────────────────

    def arrows_to(self, name: str) -> list[tuple[TaskDefinition, str]]:
        return [(task, arrow.when) for task in self.tasks.values() for arrow in task.next if arrow.task == name]

    def verdict(self, name: str) -> str:
        """Whether a task runs, does not, or is not decided."""
        if name in self.start:
            return "runs"
        taken = 0
        arrows = self.arrows_to(name)
        for source, when in arrows:
            if self.verdict(source.name) == "skipped":
                continue
            if self.verdict(source.name) == "undecided" or source.name not in self.results:
                return "undecided"
            taken += not when or Filter.parse(when).matches(self.results[source.name].attributes)
        enough = taken > 0 if self.tasks[name].join == "any" else taken == len(arrows)
        return "runs" if enough else "skipped"

    def sources(self, name: str) -> dict[str, Result]:
        """The results that lead to a task."""
        return {
            source.name: self.results[source.name]
            for source, when in self.arrows_to(name)
            if source.name in self.results
            and (not when or Filter.parse(when).matches(self.results[source.name].attributes))
        }

    def task_state(self, name: str) -> str:
        if name in self.dead:
            return "dead"
        if self.verdict(name) == "skipped":
            return "skipped"
        tries = self.tries[name]
        if not tries:
            return "waiting"
        if tries[-1].outcome:
            return "done" if tries[-1].outcome == "completed" else "cancelled"
        return "running" if tries[-1].worker else "queued"

    def open(self) -> Iterator[tuple[str, Try]]:
        """The tries that are not over."""
        for name, tries in self.tries.items():
            if tries and not tries[-1].outcome:
                yield name, tries[-1]

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────────

    def queue_what_may_run(self, now_ms: int) -> None:
        for name in self.tasks:
            if not self.tries[name] and self.verdict(name) == "runs":
                self.tries[name].append(Try(now_ms, now_ms))
        if all(name in self.results or self.verdict(name) == "skipped" for name in self.tasks):
            self.state = "completed"

    def complete(self, name: str, result: Result, now_ms: int) -> None:
        self._over(self.tries[name][-1], "completed", "", now_ms)
        self.results[name] = result
        self.queue_what_may_run(now_ms)

    def give_up(self, name: str, outcome: str, reason: str, now_ms: int, *, is_final: bool = False) -> None:
        task, tries = self.tasks[name], self.tries[name]
        self._over(tries[-1], outcome, reason, now_ms)
        if len(tries) < task.attempts and not is_final:
            pause_ms = min(task.backoff_ms * 2 ** (len(tries) - 1), task.backoff_ms_max)
            tries.append(Try(now_ms, now_ms + pause_ms))
            return
        self.dead.add(name)
        if task.on_failure == "continue":
            self.results[name] = Result()
            self.queue_what_may_run(now_ms)
        else:
            self.end("failed", now_ms)

    def end(self, state: str, now_ms: int) -> None:
        self.state = state
        for _, each in list(self.open()):
            self._over(each, "cancelled", "", now_ms)

    def next_due(self) -> tuple[int, int, int, str] | None:
        """What happens by itself: when, the job, the place of the task (the job itself last), and its name."""
        if self.state != "running":
            return None
        places = list(self.tasks)
        due = [(each.deadline_ms, self.number, places.index(name), name) for name, each in self.open() if each.worker]
        return min([*due, (self.deadline_ms, self.number, len(places), "")])

    @staticmethod
    def _over(each: Try, outcome: str, reason: str, now_ms: int) -> None:
        each.ended_ms, each.outcome, each.reason = now_ms, outcome, reason
