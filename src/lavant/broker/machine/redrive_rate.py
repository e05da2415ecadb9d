"""The rate of redrives: when the server moves the next messages of each, and how many.

A step is a command in the journal, so a redrive continues after a crash. Steps are small, with pauses between them, so
that a redrive of a million messages delays no request.
"""

from __future__ import annotations

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import MoveSome, MoveState

STEP_MESSAGES_MAX = 200
STEP_INTERVAL_MS = 5


class _Redrive:
    __slots__ = ("due_ms", "moved_before", "rate_per_s", "since_ms", "task")

    def __init__(self, state: MoveState, now_ms: int) -> None:
        self.task = state.task
        self.rate_per_s = state.rate_per_s
        self.since_ms = now_ms
        self.moved_before = state.moved
        self.due_ms = now_ms + self.interval_ms

    @property
    def interval_ms(self) -> int:
        """The pause between two steps: at least until the rate allows one message."""
        if self.rate_per_s is None:
            return STEP_INTERVAL_MS
        return max(STEP_INTERVAL_MS, -(-SECOND_MS // self.rate_per_s))


class RedriveRates:
    """The redrives that are running.

    >>> rates = RedriveRates()
    >>> rates.follow(MoveState(1, "dead", None, 400, 0, total=9, moved=0, status="running", reason=""), now_ms=0)
    >>> rates.wakeup_ms(), rates.due(4), rates.due(5)
    (5, [], [MoveSome(task=1, count=2)])
    """

    def __init__(self) -> None:
        self._redrives: dict[int, _Redrive] = {}
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._redrives)

    def follow(self, state: MoveState, now_ms: int) -> None:
        """A redrive began, made a step, or ended."""
        if state.status != "running":
            self.forget(state.task)
            return
        if state.task not in self._redrives:
            self._redrives[state.task] = _Redrive(state, now_ms)
        self._moved[state.task] = state.moved

    def forget(self, task: int) -> None:
        self._redrives.pop(task, None)
        self._moved.pop(task, None)

    def wakeup_ms(self) -> int | None:
        return min((redrive.due_ms for redrive in self._redrives.values()), default=None)

    def due(self, now_ms: int) -> list[MoveSome]:
        """The steps that are due, in the order of their tasks."""
        steps = []
        for task in sorted(self._redrives):
            redrive = self._redrives[task]
            if redrive.due_ms <= now_ms:
                redrive.due_ms = now_ms + redrive.interval_ms
                count = self._allowed(redrive, now_ms)
                if count > 0:
                    steps.append(MoveSome(task, count))
        return steps

    def _allowed(self, redrive: _Redrive, now_ms: int) -> int:
        if redrive.rate_per_s is None:
            return STEP_MESSAGES_MAX
        so_far = self._moved[redrive.task] - redrive.moved_before
        return min(STEP_MESSAGES_MAX, redrive.rate_per_s * (now_ms - redrive.since_ms) // SECOND_MS - so_far)
