"""A worker of a crew: the same as `lavant worker`, with its settings from the crew."""

from __future__ import annotations

import logging
import os

from lavant.client.connection.retrying import TIMEOUT_S
from lavant.client.workers.backend import Backend
from lavant.client.workers.backends.choosing import open_backend
from lavant.client.workers.backends.lavant import PATIENCE
from lavant.client.workers.functions import Handler
from lavant.client.workers.process import default_name, work
from lavant.client.workers.worker import Worker
from lavant.core.crews import BACKEND_VARIABLE, PULSE_VARIABLE, CrewSettings
from lavant.core.errors import LavantError

KEY_VARIABLE = "LAVANT_KEY"
_logger = logging.getLogger(__name__)


async def be_worker(settings: CrewSettings, handler: Handler, pulse: int) -> int:
    """Work until it is told to leave; the exit code of the process."""
    os.environ[PULSE_VARIABLE] = str(pulse)

    async def open_it() -> Backend:
        return await open_backend(
            os.environ.get(BACKEND_VARIABLE, settings.url),
            default_name(),
            key=os.environ.get(KEY_VARIABLE, ""),
            ca_file=settings.ca_file if settings.ca_file else None,
            timeout_s=TIMEOUT_S,
            retries=PATIENCE,
            concurrency=settings.concurrency,
            lease_s=settings.lease_s,
        )

    def make(backend: Backend) -> Worker:
        return Worker(backend, [handler], concurrency=settings.concurrency, lease_s=settings.lease_s)

    try:
        await work(open_it, make, drain_s=settings.drain_s)
    except LavantError as error:
        _logger.warning("worker %d of topic %s ends: %s", os.getpid(), settings.topic, error)
        return 1
    return 0
