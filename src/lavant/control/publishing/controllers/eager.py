"""The default controller: takes waiting publications as soon as it can, and backs off when the broker is congested.

Polling makes every publication wait for the next poll, and waiting for N makes it wait for others. Neither is needed to
form batches: while one batch is read from the store and published, the next gathers by itself, and it is the larger the
higher the load. So N is as large as allowed, T_poll is 0, the next batch is read while the last one waits for workers,
and the controlled quantity is the number of concurrent transfers. Publications are spread over those: fewer concurrent
transfers are larger ones, which suit a congested broker best, and leave workers free for receiving.

    event                                                                        transfers_max
    ──────────────────────────────────────────────────────────────────────────   ─────────────────────────────────────
    a transfer ended, the strain is below 1.1, and more was ready than allowed   + 1 in the time of a transfer
    a transfer ended, and the strain is above 1.3                                · 0.7, once in the time of a transfer
    no transfer has ended for three times as long as one should take             2, and a probe
    a transfer failed                                                            / 2, and the publisher pauses
    the limit has delayed 32 transfers, and the strain stays                     a probe: 2 for 8 transfers
    a probe is over                                                              as before; all if the path is longer

The strain is how much longer transfers take than a single one, see `TransferTimes`. The rule is that of TCP Vegas:
time, unlike loss, shows congestion before anything breaks.

A *probe* distinguishes a congested broker from one that is further away than before (another route, another region).
Both look alike from the transfers of a busy publisher; with two in flight, the congested one is fast again. If even the
fastest transfer of a probe took longer than expected, the path is that much longer now. The fastest, because a broker
that blocks now and then delays some of them, but not all. Probes that find nothing new become rare: each waits for
twice as many transfers as the one before. A stall limits transfers permanently, not for the probe alone: one may be
stuck, all are unlikely.
"""

from __future__ import annotations

import msgspec

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.interface import BatchSettings, Figures, Passive, TransferEnded
from lavant.core.decisions import Decision

RIVALS_MAX = 1
"""With up to so many others in flight, a transfer counts as alone."""
STRAIN_NONE = 0.95
"""Below it, transfers are faster than expected, whatever else is in flight."""
_LEARNING = 1 / 16
_SMOOTHING = 1 / 32
_RATIO_MAX = 2.0
"""A transfer counts for at most so many times its expected duration: the length of a stall says nothing about the next.
"""


class TransferTimes:
    """Learns the duration of transfers from those that ended.

    >>> times = TransferTimes()
    >>> for _ in range(300):
    ...     times.add(size=1, duration_ms=145, rivals=0)
    ...     times.add(size=11, duration_ms=195, rivals=1)
    >>> round(times.expected_ms(1)), round(times.expected_ms(21)), round(times.strain, 1)
    (145, 245, 1.0)
    >>> for _ in range(100):
    ...     times.add(size=1, duration_ms=290, rivals=9)
    >>> round(times.expected_ms(1)), round(times.strain, 1)
    (145, 2.0)
    """

    def __init__(self) -> None:
        self.strain = 1.0
        self._start_ms: float | None = None
        self._each_ms = 0.0

    @property
    def are_known(self) -> bool:
        return self._start_ms is not None

    def expected_ms(self, size: int) -> float:
        """Of a transfer of so many publications; at least the 1 ms that a clock can resolve."""
        return max(1.0, (self._start_ms or 0.0) + (size - 1) * self._each_ms)

    def relax(self) -> None:
        """Forget the strain: with fewer in flight from now on, earlier observations do not apply."""
        self.strain = 1.0

    def lengthen(self, more_ms: float) -> None:
        """The path to the broker takes so much longer, for any size."""
        self._start_ms = (self._start_ms or 0.0) + more_ms

    def add(self, *, size: int, duration_ms: int, rivals: int) -> None:
        if self._start_ms is None:
            self._start_ms = float(duration_ms)
        expected_ms = self.expected_ms(size)
        counted_ms = min(duration_ms, _RATIO_MAX * expected_ms)
        self.strain += _SMOOTHING * (counted_ms / expected_ms - self.strain)
        if rivals <= RIVALS_MAX or self.strain < STRAIN_NONE:
            more = size - 1
            step_ms = _LEARNING * (counted_ms - expected_ms) / (1 + more * more)
            self._start_ms = max(0.0, self._start_ms + step_ms)
            self._each_ms = max(0.0, self._each_ms + step_ms * more)


STRAIN_LOW = 1.1
"""Below it, the broker could take more concurrent transfers."""
STRAIN_HIGH = 1.3
"""Above it, the broker is congested."""
SILENT = 3.0
"""A stall: no transfer has ended for so many times its expected duration."""
SLACK_MS = 10
"""Shorter delays are noise, of threads and of a clock that counts milliseconds."""
DECREASE = 0.7
TRANSFERS_MIN = 2
PROBE_AFTER, PROBE_AFTER_MAX = 32, 1024
"""Transfers under strain until the first probe, and at most."""
PROBE_TRANSFERS = 8
PROBE_GAIN = 1.1
"""The path is longer if the fastest transfer of a probe took so many times what was expected."""


class EagerController(Passive):
    """No polling, no waiting; limits transfers by the time they take."""

    name = "eager"

    def __init__(self, config: PublisherConfig) -> None:
        self._transfers_max = config.transfers_max
        self._transfers_min = min(TRANSFERS_MIN, config.transfers_max)
        self._limit = float(config.transfers_max)
        """`transfers_max` before rounding."""
        self._times = TransferTimes()
        self._decreased_ms: int | None = None
        self._strained = 0
        """Transfers that ended under strain while more was ready, since the last probe."""
        self._probe_after = PROBE_AFTER
        self._late_ms: list[float] | None = None
        """During a probe: how much longer than expected its transfers took."""
        self.settings = BatchSettings(
            batch_size=config.tuning.batch_size_max, poll_ms=0, transfers_max=config.transfers_max
        )

    def wants_to_send(self, figures: Figures) -> Decision | None:
        expected_ms = self._times.expected_ms(figures.transfer_size)
        is_probing = self._late_ms is not None
        if is_probing or not self._times.are_known or figures.silence_ms <= SILENT * expected_ms + SLACK_MS:
            return None
        self._late_ms = []
        reason = f"nothing has come back from the broker for {figures.silence_ms} ms"
        return self._set(figures, self._transfers_min, reason, expected_ms=expected_ms)

    def published(self, figures: Figures, ended: TransferEnded) -> Decision | None:
        expected_ms = self._times.expected_ms(ended.size)
        if self._late_ms is not None:
            if ended.rivals < self._transfers_min:
                self._late_ms.append(ended.duration_ms - expected_ms)
            return self._end_probe(figures, expected_ms) if len(self._late_ms) == PROBE_TRANSFERS else None
        self._times.add(size=ended.size, duration_ms=ended.duration_ms, rivals=ended.rivals)
        strain = self._times.strain
        seen = {"strain": strain, "duration_ms": ended.duration_ms, "expected_ms": expected_ms}
        if strain <= STRAIN_LOW:
            if not ended.was_held:
                return None
            return self._set(figures, self._limit + 1 / self._limit, "the broker keeps up, and more is ready", **seen)
        self._strained += ended.was_held
        if self._strained >= self._probe_after:
            return self._begin_probe(figures, **seen)
        is_chance = ended.duration_ms - expected_ms <= SLACK_MS
        if strain <= STRAIN_HIGH or is_chance or not self._may_decrease(figures.now_ms, ended.duration_ms):
            return None
        self._decreased_ms = figures.now_ms
        return self._set(figures, self._limit * DECREASE, "transfers take longer the more there are", **seen)

    def failed(self, figures: Figures) -> Decision | None:
        self._decreased_ms = figures.now_ms
        self._late_ms = None
        return self._set(figures, self._limit / 2, "the broker did not take a transfer")

    def _begin_probe(self, figures: Figures, **seen: float) -> Decision | None:
        self._strained = 0
        self._late_ms = []
        reason = (
            "transfers take longer than expected, and go on to: a few, almost alone, show whether the way is longer"
        )
        return self._show(figures, self._transfers_min, reason, **seen)

    def _end_probe(self, figures: Figures, expected_ms: float) -> Decision | None:
        assert self._late_ms is not None
        late_ms, self._late_ms = min(self._late_ms), None
        self._times.relax()
        seen = {"expected_ms": expected_ms, "late_ms": late_ms}
        if late_ms <= max(SLACK_MS, (PROBE_GAIN - 1) * expected_ms):
            self._probe_after = min(2 * self._probe_after, PROBE_AFTER_MAX)
            return self._show(
                figures, int(self._limit), "the way is as long as it was: the broker is congested", **seen
            )
        self._probe_after = PROBE_AFTER
        self._times.lengthen(late_ms)
        reason = f"the way to the broker takes {late_ms:.0f} ms longer than it did"
        return self._set(figures, self._transfers_max, reason, **seen)

    def _may_decrease(self, now_ms: int, duration_ms: int) -> bool:
        """Once in the time of a transfer: those already in flight cannot show the effect of a decrease."""
        return self._decreased_ms is None or now_ms - duration_ms >= self._decreased_ms

    def _set(self, figures: Figures, limit: float, reason: str, **more: float) -> Decision | None:
        if limit < self._limit:
            self._times.relax()
        self._limit = min(max(limit, self._transfers_min), self._transfers_max)
        return self._show(figures, int(self._limit), reason, **more)

    def _show(self, figures: Figures, transfers_max: int, reason: str, **more: float) -> Decision | None:
        before = self.settings.transfers_max
        if transfers_max == before:
            return None
        self.settings = msgspec.structs.replace(self.settings, transfers_max=transfers_max)
        return figures.decision(f"transfers {before} → {transfers_max}", reason, self.settings, **more)
