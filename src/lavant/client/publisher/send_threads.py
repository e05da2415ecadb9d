"""The threads that send publications to the broker, started on demand."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

from lavant.client.publisher.transport import Transport
from lavant.core.errors import InvalidValue, LavantError, NotPublished, PartlyRefused
from lavant.core.publications.publication import Publication
from lavant.core.seconds import SECOND_MS

_logger = logging.getLogger(__name__)


class SentBatch(NamedTuple):
    """The result of a transfer. If `error` is None, the broker has all publications except those refused for good."""

    transfer: int
    refused: dict[int, LavantError]
    """Refusals by index in the transfer."""
    error: Exception | None = None

    @property
    def retry_after_ms(self) -> int:
        return round(self.error.retry_after_s * SECOND_MS) if isinstance(self.error, NotPublished) else 0


class SendThreads:
    """Worker threads call `on_sent`."""

    def __init__(self, transport: Transport, *, on_sent: Callable[[SentBatch], None]) -> None:
        self._transport = transport
        self._on_sent = on_sent
        self._work: SimpleQueue[tuple[int, list[Publication]] | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._idle = 0
        """The number of idle workers."""

    def send(self, transfer: int, batch: list[Publication]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                name = f"lavant-publisher-{len(self._threads)}"
                self._threads.append(Thread(target=self._run, name=name, daemon=True))
                self._threads[-1].start()
        self._work.put((transfer, batch))

    def close(self, wait_s: float) -> None:
        """Waits up to `wait_s` for transfers in flight."""
        for _ in self._threads:
            self._work.put(None)
        deadline_s = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            transfer, batch = work
            sent = self._send(transfer, batch)
            with self._lock:
                self._idle += 1
            self._on_sent(sent)

    def _send(self, transfer: int, batch: list[Publication]) -> SentBatch:
        try:
            self._transport.publish(batch)
        except PartlyRefused as error:
            if all(isinstance(reason, InvalidValue) for reason in error.refused.values()):
                return SentBatch(transfer, error.refused)
            return SentBatch(transfer, {}, error)  # valid publications may be accepted later
        except Exception as error:  # no error makes the publisher give up what it stored
            if not isinstance(error, LavantError | OSError):
                _logger.exception("the transport failed in a way that it should not")
            return SentBatch(transfer, {}, error)
        return SentBatch(transfer, {})
