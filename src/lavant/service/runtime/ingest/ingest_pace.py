"""The pace of ingest: when the next batch of publications begins.

    batch ──► the event loop works ──► pause, three times as long ──► what gathered is the next batch

A small batch costs nearly as much as a larger one, above all if it wakes many consumers: without pauses the event loop
would use all of a core at any rate, and whatever else runs on the machine would wait for it.

Pauses help while senders send on. Senders that wait for the answer to each publication only become slower. Both look
alike from here, so it is tried, again and again:

    WARM_UP ──► AT_ONCE ──► TRIAL ──┬── as many publications come ──► GATHERING ──► AT_ONCE
                   ▲                └── fewer come ──┐
                   └────── each time longer ─────────┘

The more often a trial ends in the same way, the longer its result holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

BUSY_MAX = 0.25
"""Share of a core that the event loop may use while publications come in small batches."""
GATHER_S_MAX = 0.008
"""From the beginning of a batch to that of the next one."""
RELAYED_S_MAX = 0.003
"""The same for publications of neighbouring brokers, where they have gathered already."""
GATHER_S_MIN = 0.0005
"""A shorter pause is not worth a timer."""
GATHERED_MIN, GATHERED_MAX = 4, 256
"""Publications: after a smaller batch there is time, and a larger one gains nothing by waiting."""
TRIAL_BATCHES = 16
RATE_KEPT_MIN = 0.85
"""Of the rate without pauses. If it falls below, senders wait for answers."""
GATHERING_BATCHES_MAX, AT_ONCE_BATCHES_MAX = 512, 4096
"""Until the next trial; after the first trial `TRIAL_BATCHES`, then twice as many each time."""
IDLE_S = 0.1
"""After such a time without a batch, nothing that was learned counts."""


class PacePhase(Enum):
    WARM_UP = "no pauses, senders begin"
    AT_ONCE = "no pauses"
    TRIAL = "pauses, compared with the phase before"
    GATHERING = "pauses"


class IngestPace:
    """Decides how long publications gather. `used` is the processor time of the event loop."""

    def __init__(
        self, *, clock: Callable[[], float] = time.perf_counter, used: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._used = clock, used
        self._size = 0
        """Publications of the last batch."""
        self._began_s = self._began_used_s = 0.0
        self._at_once_batches = self._gathering_batches = TRIAL_BATCHES
        """Lengths of the next phase without pauses, and of the next one with them."""
        self._rate_per_s = 0.0
        """Publications in the last phase without pauses."""
        self._enter(PacePhase.WARM_UP, TRIAL_BATCHES, 0.0)

    def pause_s(self, waiting: int, *, is_relayed: bool = False) -> float:
        """How long the publications that wait should gather; 0 if they should be matched now."""
        if not self._pauses or self._size < GATHERED_MIN or waiting >= GATHERED_MAX:
            return 0.0
        gather_s_max = RELAYED_S_MAX if is_relayed else GATHER_S_MAX
        passed_s = self._clock() - self._began_s
        if passed_s >= gather_s_max:
            return 0.0
        pause_s = min(gather_s_max, (self._used() - self._began_used_s) / BUSY_MAX) - passed_s
        return pause_s if pause_s >= GATHER_S_MIN else 0.0

    def begin(self, publications: int) -> None:
        """A batch of so many begins."""
        now_s = self._clock()
        if now_s - self._began_s > IDLE_S:
            self._at_once_batches = self._gathering_batches = TRIAL_BATCHES
            self._enter(PacePhase.WARM_UP, TRIAL_BATCHES, now_s)
        else:
            self._publications += publications
            self._batches_left -= 1
            if not self._batches_left:
                self._end_phase(now_s)
        self._size = publications
        self._began_s, self._began_used_s = now_s, self._used()

    def _enter(self, phase: PacePhase, batches: int, now_s: float) -> None:
        self._phase, self._batches_left = phase, batches
        self._pauses = phase in (PacePhase.TRIAL, PacePhase.GATHERING)
        self._since_s, self._publications = now_s, 0

    def _end_phase(self, now_s: float) -> None:
        rate_per_s = self._publications / max(now_s - self._since_s, 1e-9)
        if self._phase is PacePhase.AT_ONCE:
            self._rate_per_s = rate_per_s
            self._enter(PacePhase.TRIAL, TRIAL_BATCHES, now_s)
        elif self._phase is PacePhase.TRIAL and rate_per_s >= RATE_KEPT_MIN * self._rate_per_s:
            self._at_once_batches = TRIAL_BATCHES
            self._enter(PacePhase.GATHERING, self._gathering_batches, now_s)
            self._gathering_batches = min(2 * self._gathering_batches, GATHERING_BATCHES_MAX)
        else:
            if self._phase is PacePhase.TRIAL:
                self._at_once_batches = min(2 * self._at_once_batches, AT_ONCE_BATCHES_MAX)
                self._gathering_batches = TRIAL_BATCHES
            self._enter(PacePhase.AT_ONCE, self._at_once_batches, now_s)
