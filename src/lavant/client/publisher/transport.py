"""How a publisher sends publications to a broker: the interface, and the transport over a client's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.loop_thread import LoopThread
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.publications import Requests, key_of_contents
from lavant.core.publications.publication import Publication

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher


class Transport(Protocol):
    """Several threads call it at the same time."""

    def publish(self, batch: list[Publication]) -> None:
        """Returns when the broker has all publications; it should recognise by their ids those that it had already.

        Raises `NotPublished` if the broker may not have them: the same batch comes again, after at least
        `retry_after_s`. Any other error counts as that, except `PartlyRefused` with nothing but `InvalidValue` in it:
        those are refused for good, and the broker has all others. Must end at some time, so it needs a timeout.
        """
        ...


class BackgroundTransport:
    """Sends batches in the event loop of a client's thread, over one connection, many in flight.

    It retries nothing: the publisher does, and learns from failures how much the server can take. A repeated batch has
    the same idempotency key, also from another process, so the server does not publish it twice.
    """

    def __init__(self, thread: LoopThread, settings: ConnectionSettings, cipher: Cipher | None) -> None:
        self._thread = thread
        self._cipher = cipher
        self._connection = thread.run(_new_connection(settings._replace(retries=NO_RETRIES)))

    def publish(self, batch: list[Publication]) -> None:
        requests = Requests(batch, self._cipher, key_of_contents)
        self._thread.run(self._publish(requests))
        requests.ids()

    def close(self) -> None:
        self._thread.run(self._connection.close())

    async def _publish(self, requests: Requests) -> None:
        for places, call in requests:
            results = await self._connection.run(call)
            requests.take(places, results)


async def _new_connection(settings: ConnectionSettings) -> AsyncConnection:
    return AsyncConnection(settings)
