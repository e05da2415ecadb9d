"""N and T_poll as they are configured: the baseline without tuning."""

from __future__ import annotations

from lavant.control.tuning.config import PublisherConfig
from lavant.control.tuning.interface import Passive, Settings


class FixedController(Passive):
    """Changes nothing."""

    name = "fixed"

    def __init__(self, config: PublisherConfig) -> None:
        self.settings = Settings(
            batch_size=config.tuning.batch_size,
            poll_ms=config.tuning.poll_ms,
            transfers_max=config.transfers_max,
        )
