"""The pace of moves (redrives): when a server takes the next step of which, and how large it is.

A step is a command like any other, in the journal too, so after a crash a move goes on where it was. Steps are small,
and pauses lie between them, so that a move of a million messages holds nobody up.
"""

from __future__ import annotations

from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.broker.protocol.queues import MoveSome, MoveState

STEP_MESSAGES_MAX = 200
STEP_INTERVAL_MS = 5


class _Pace:
    __slots__ = ("due_ms", "moved_before", "rate_per_s", "since_ms", "task")

    def __init__(self, state: MoveState, now_ms: int) -> None:
        self.task = state.task
        self.rate_per_s = state.rate_per_s
        self.since_ms = now_ms
        self.moved_before = state.moved
        self.due_ms = now_ms + self.interval_ms

    @property
    def interval_ms(self) -> int:
        """At least until one message may go."""
        if self.rate_per_s is None:
            return STEP_INTERVAL_MS
        return max(STEP_INTERVAL_MS, -(-SECOND_MS // self.rate_per_s))


class RedriveRates:
    """The moves that are under way.

    >>> paces = RedriveRates()
    >>> paces.follow(MoveState(1, "dead", None, 400, 0, total=9, moved=0, status="running", reason=""), now_ms=0)
    >>> paces.wakeup_ms(), paces.due(4), paces.due(5)
    (5, [], [MoveSome(task=1, count=2)])
    """

    def __init__(self) -> None:
        self._paces: dict[int, _Pace] = {}
        self._moved: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._paces)

    def follow(self, state: MoveState, now_ms: int) -> None:
        """A move began, went on, or ended."""
        if state.status != "running":
            self.forget(state.task)
            return
        if state.task not in self._paces:
            self._paces[state.task] = _Pace(state, now_ms)
        self._moved[state.task] = state.moved

    def forget(self, task: int) -> None:
        self._paces.pop(task, None)
        self._moved.pop(task, None)

    def wakeup_ms(self) -> int | None:
        return min((pace.due_ms for pace in self._paces.values()), default=None)

    def due(self, now_ms: int) -> list[MoveSome]:
        """The steps to be taken now, in the order of their tasks."""
        steps = []
        for task in sorted(self._paces):
            pace = self._paces[task]
            if pace.due_ms <= now_ms:
                pace.due_ms = now_ms + pace.interval_ms
                count = self._allowed(pace, now_ms)
                if count > 0:
                    steps.append(MoveSome(task, count))
        return steps

    def _allowed(self, pace: _Pace, now_ms: int) -> int:
        if pace.rate_per_s is None:
            return STEP_MESSAGES_MAX
        so_far = self._moved[pace.task] - pace.moved_before
        return min(STEP_MESSAGES_MAX, pace.rate_per_s * (now_ms - pace.since_ms) // SECOND_MS - so_far)
