"""Controllers by name."""

from __future__ import annotations

from collections.abc import Callable

from lavant.control.publishing.config import PublisherConfig
from lavant.control.publishing.controllers.aimd import AimdController
from lavant.control.publishing.controllers.eager import EagerController
from lavant.control.publishing.controllers.fixed import FixedController
from lavant.control.publishing.controllers.interface import Controller
from lavant.core.errors import InvalidValue

CONTROLLERS: dict[str, Callable[[PublisherConfig], Controller]] = {
    controller.name: controller for controller in (EagerController, AimdController, FixedController)
}


def new_controller(config: PublisherConfig) -> Controller:
    """The controller that the configuration names."""
    name = config.tuning.controller
    if name not in CONTROLLERS:
        raise InvalidValue(f"there is no controller {name!r}; choose one of {', '.join(sorted(CONTROLLERS))}")
    return CONTROLLERS[name](config)
