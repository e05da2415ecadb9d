"""When to take publications from the store, and how many: the main publisher thread.

"Auto-tuned Publisher in a Pub/Sub System", Section III and Figure 5:

                 N are waiting, or T is over and some are              fetched, and taken by workers
      ┌──────┐ ──────────────────────────────────────────► ┌───────┐ ─────────────────────────────────────► idle
      │ idle │                                             │ batch │
      └──────┘                                             └───────┘
       │    ▲
       └────┘ every T_poll: fewer than N

The poll timer starts with a batch. If passing the batch to workers takes longer than T_poll, that poll is missed, and
made up for T_poll_min after the batch's end. T, the time after which any number will do, starts at the batch's end too.
With T_poll = 0 there is no waiting: everything is taken as soon as the last batch has been read.
"""

from __future__ import annotations

from typing import NamedTuple

from lavant.control.publishing.controllers.interface import BatchSettings


class HandedOver(NamedTuple):
    """A batch that workers have taken."""

    took_ms: int
    """T_mpt: from the decision to take it."""
    in_time: bool
    """Before the next poll was due."""
    was_full: bool
    """It was taken because there were N, not because T was over."""


class BatchScheduler:
    """The timers of one publisher."""

    def __init__(self, *, wait_ms_max: int, poll_ms_min: int, now_ms: int, poll_ms: int) -> None:
        self._wait_ms_max = wait_ms_max
        self._poll_ms_min = poll_ms_min
        self._began_ms: int | None = None
        self._began_poll_ms = 0
        self._was_full = False
        self._poll_due_ms = now_ms + poll_ms
        self._wait_until_ms = now_ms + wait_ms_max

    @property
    def is_idle(self) -> bool:
        return self._began_ms is None

    def wakeup_ms(self, settings: BatchSettings) -> int | None:
        return self._poll_due_ms if self.is_idle and settings.poll_ms > 0 else None

    def is_poll_due(self, now_ms: int) -> bool:
        return self.is_idle and now_ms >= self._poll_due_ms

    def has_waited(self, now_ms: int) -> bool:
        """T is over."""
        return now_ms >= self._wait_until_ms

    def poll_again(self, now_ms: int, settings: BatchSettings) -> None:
        self._poll_due_ms = now_ms + settings.poll_ms

    def begin(self, now_ms: int, settings: BatchSettings, *, is_full: bool) -> None:
        self._began_ms = now_ms
        self._began_poll_ms = settings.poll_ms
        self._was_full = is_full

    def end(self, now_ms: int) -> HandedOver:
        """Workers have taken everything."""
        assert self._began_ms is not None, "there is a batch to end"
        took_ms = now_ms - self._began_ms
        due_ms = self._began_ms + self._began_poll_ms
        self._poll_due_ms = due_ms if now_ms <= due_ms else now_ms + self._poll_ms_min
        self._wait_until_ms = now_ms + self._wait_ms_max
        self._began_ms = None
        return HandedOver(took_ms, now_ms <= due_ms, self._was_full)
