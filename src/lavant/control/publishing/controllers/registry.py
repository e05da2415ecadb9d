"""Controllers by name, and `fixed`."""

from __future__ import annotations

from collections.abc import Callable

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.aimd import AimdController
from lavant.control.publishing.controllers.eager import EagerController
from lavant.control.publishing.controllers.interface import BatchSettings, Controller, Passive
from lavant.core.errors import InvalidValue


class FixedController(Passive):
    """Configured N and T_poll: the baseline without tuning."""

    name = "fixed"

    def __init__(self, config: PublisherConfig) -> None:
        self.settings = BatchSettings(
            batch_size=config.tuning.batch_size, poll_ms=config.tuning.poll_ms, transfers_max=config.transfers_max
        )


CONTROLLERS: dict[str, Callable[[PublisherConfig], Controller]] = {
    controller.name: controller for controller in (EagerController, AimdController, FixedController)
}


def new_controller(config: PublisherConfig) -> Controller:
    """The controller that the configuration names."""
    name = config.tuning.controller
    if name not in CONTROLLERS:
        raise InvalidValue(f"there is no controller {name!r}; choose one of {', '.join(sorted(CONTROLLERS))}")
    return CONTROLLERS[name](config)
