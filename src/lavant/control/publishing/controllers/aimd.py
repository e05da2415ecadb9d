"""The controller of "Auto-tuned Publisher in a Pub/Sub System", Section IV-B and Figure 7.

    event                                            N            T_poll
    ─────────────────────────────────────────────    ─────        ──────────────────────────────────────────────────
    the poll finds fewer than N                      N / 2        unchanged
    a batch of N was taken before the next poll      N + 1        β · T_mpt, within [T_poll_min, T_poll_max]
    … or after it                                    N - 1        the same
    a batch of fewer, because T was over             unchanged    the same

N stays within [λ_est · T_poll_min, η_est · 1 s]. This needs two interpretations. N_max is set to η_est, which is a
rate: it is taken as the publications of one second. λ_est is estimated and never used: here it bounds N from below by
the arrivals in the shortest polling interval, since a smaller N could not keep up at any. Where the two bounds cross,
the capacity wins.
"""

from __future__ import annotations

import math

import msgspec

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.interface import BatchSettings, Figures, Passive
from lavant.core.decisions import Decision

N_MAX_INTERVAL_S = 1.0
"""The interval that turns the capacity into a batch size."""


class AimdController(Passive):
    """Additive increase and multiplicative decrease of N; T_poll follows the time to pass a batch to workers."""

    name = "aimd"

    def __init__(self, config: PublisherConfig) -> None:
        self._config = config.tuning
        self.settings = BatchSettings(
            batch_size=config.tuning.batch_size, poll_ms=config.tuning.poll_ms, transfers_max=config.transfers_max
        )

    def fell_short(self, figures: Figures) -> Decision | None:
        return self._set(figures, self.settings.batch_size // 2, self.settings.poll_ms, "fewer than N are waiting")

    def handed_over(self, figures: Figures, *, took_ms: int, in_time: bool, was_full: bool) -> Decision | None:
        config = self._config
        poll_ms = max(min(round(config.poll_margin * took_ms), config.poll_ms_max), config.poll_ms_min)
        if not was_full:
            step, reason = 0, "T was over before there were N"
        elif in_time:
            step, reason = 1, "the batch was handed over before the next poll"
        else:
            step, reason = -1, "the batch was handed over after the next poll was due"
        return self._set(figures, self.settings.batch_size + step, poll_ms, reason, took_ms=took_ms)

    def _set(self, figures: Figures, batch_size: int, poll_ms: int, reason: str, **more: float) -> Decision | None:
        before = self.settings
        self.settings = msgspec.structs.replace(before, batch_size=self._bounded(batch_size, figures), poll_ms=poll_ms)
        if self.settings == before:
            return None
        changes = [
            f"{symbol} {old} → {new}"
            for symbol, old, new in (
                ("N", before.batch_size, self.settings.batch_size),
                ("T_poll", before.poll_ms, poll_ms),
            )
            if old != new
        ]
        return figures.decision(", ".join(changes), reason, self.settings, **more)

    def _bounded(self, batch_size: int, figures: Figures) -> int:
        config = self._config
        needed = math.ceil(figures.load_per_s * config.poll_ms_min / 1000)
        wanted = min(max(batch_size, needed, config.batch_size_min), config.batch_size_max)
        if figures.capacity_per_s is None:
            return wanted
        return max(min(wanted, math.floor(figures.capacity_per_s * N_MAX_INTERVAL_S)), config.batch_size_min)
