"""The default controller: takes what waits as soon as it can, and backs off when the broker is congested.

Polling makes every publication wait for the next poll, and waiting for N makes it wait for others. Neither is needed to
form batches: while one batch is read from the store and handed over, the next gathers by itself, and it is the larger
the higher the load is. So N is as large as it may be, T_poll is 0, the next batch is read while the last one waits for
workers, and what is controlled is how many transfers may be under way. Publications are spread over those: fewer
transfers at a time are larger ones, which is what a congested broker takes best, and they leave workers free for
receiving.

what happened                                                                    transfers_max
───────────────────────────────────────────────────────────────────────────     ─────────────────────────────────────
a transfer ended, the strain is below 1.1, and more was ready than might go      + 1 in the time of a transfer
a transfer ended, and the strain is above 1.3                                    · 0.7, once in the time of a transfer
no transfer has ended for three times as long as one should take                 2: one may be stuck, all are unlikely
a transfer failed                                                                / 2, and the publisher pauses

The strain is how much longer transfers take than one that is alone, see `transfer_times`. The rule is that of TCP
Vegas: time, unlike loss, shows congestion before something breaks.
"""

from __future__ import annotations

import msgspec

from lavant.control.tuning.config import PublisherConfig
from lavant.control.tuning.interface import Ended, Figures, Passive, Settings
from lavant.control.tuning.transfer_times import TransferTimes
from lavant.core.decisions import Decision

STRAIN_LOW = 1.1
"""Up to here the broker could take more at a time."""
STRAIN_HIGH = 1.3
"""From here on it is congested."""
SILENT = 3.0
"""Nothing for so many times as long as a transfer should take is a stall."""
SLACK_MS = 10
"""Delays below this are chance: of threads, and of a clock that counts milliseconds."""
DECREASE = 0.7
TRANSFERS_MIN = 2


class EagerController(Passive):
    """No polling, no waiting; transfers are limited by the time they take."""

    name = "eager"

    def __init__(self, config: PublisherConfig) -> None:
        self._transfers_max = config.transfers_max
        self._transfers_min = min(TRANSFERS_MIN, config.transfers_max)
        self._limit = float(config.transfers_max)
        """What `transfers_max` is rounded from."""
        self._times = TransferTimes()
        self._decreased_ms: int | None = None
        self.settings = Settings(batch_size=config.tuning.batch_size_max, poll_ms=0, transfers_max=config.transfers_max)

    def wants_to_send(self, figures: Figures) -> Decision | None:
        expected_ms = self._times.expected_ms(1)
        if not self._times.are_known or figures.silence_ms <= SILENT * expected_ms + SLACK_MS:
            return None
        reason = f"nothing has come back from the broker for {figures.silence_ms} ms"
        return self._set(figures, self._transfers_min, reason, expected_ms=expected_ms)

    def published(self, figures: Figures, ended: Ended) -> Decision | None:
        self._times.add(size=ended.size, duration_ms=ended.duration_ms, rivals=ended.rivals)
        strain = self._times.strain
        expected_ms = self._times.expected_ms(ended.size)
        seen = {"strain": strain, "duration_ms": ended.duration_ms, "expected_ms": expected_ms}
        if strain <= STRAIN_LOW:
            if not ended.was_held:
                return None
            return self._set(figures, self._limit + 1 / self._limit, "the broker keeps up, and more is ready", **seen)
        is_chance = ended.duration_ms - expected_ms <= SLACK_MS
        if strain <= STRAIN_HIGH or is_chance or not self._may_decrease(figures.now_ms, ended.duration_ms):
            return None
        self._decreased_ms = figures.now_ms
        return self._set(figures, self._limit * DECREASE, "transfers take longer the more there are", **seen)

    def failed(self, figures: Figures) -> Decision | None:
        self._decreased_ms = figures.now_ms
        return self._set(figures, self._limit / 2, "the broker did not take a transfer")

    def _may_decrease(self, now_ms: int, duration_ms: int) -> bool:
        """Once in the time of a transfer: those that were under way already cannot show the effect of a decrease."""
        return self._decreased_ms is None or now_ms - duration_ms >= self._decreased_ms

    def _set(self, figures: Figures, limit: float, reason: str, **more: float) -> Decision | None:
        before = self.settings.transfers_max
        if limit < self._limit:
            self._times.relax()
        self._limit = min(max(limit, self._transfers_min), self._transfers_max)
        bounded = int(self._limit)
        if bounded == before:
            return None
        self.settings = msgspec.structs.replace(self.settings, transfers_max=bounded)
        return figures.decision(f"transfers {before} → {bounded}", reason, self.settings, **more)
