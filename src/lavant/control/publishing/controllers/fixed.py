"""Configured N and T_poll: the baseline without tuning."""

from __future__ import annotations

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.interface import BatchSettings, Passive


class FixedController(Passive):
    name = "fixed"

    def __init__(self, config: PublisherConfig) -> None:
        self.settings = BatchSettings(
            batch_size=config.tuning.batch_size, poll_ms=config.tuning.poll_ms, transfers_max=config.transfers_max
        )
