"""Chooses the backend by the scheme of an address."""

from __future__ import annotations

from pathlib import Path

from lavant.broker.protocol.amqp_messages import is_amqp
from lavant.client.connection.retries import Retries
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.workers.backend import LEASE_S, Backend
from lavant.client.workers.backends.lavant import LavantBackend


async def open_backend(
    url: str,
    worker: str,
    *,
    key: str,
    ca_file: Path | str | None,
    timeout_s: float,
    retries: Retries,
    concurrency: int = 1,
    lease_s: float = LEASE_S,
) -> Backend:
    """RabbitMQ for `amqp://…` and `amqps://…`, otherwise a Lavant server. Raises if it cannot connect."""
    if is_amqp(url):
        from lavant.client.workers.backends.rabbitmq import RabbitMQBackend  # noqa: PLC0415  its library is an extra

        through = RabbitMQBackend(url, worker, concurrency=concurrency, lease_s=lease_s)
        await through.open()
        return through
    settings = ConnectionSettings.of(url, key=key, ca_file=ca_file, timeout_s=timeout_s, retries=retries)
    server = LavantBackend(settings, worker, lease_s=lease_s)
    await server.open()
    return server
