"""The thread that makes publications durable, by group commit.

Settled tickets are written with the next publications, or in idle time, since no caller waits for them. A full disk is
retried; meanwhile the buffer fills, and then publications are dropped or wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread

from lavant.client.publisher.store import PublicationStore
from lavant.core.errors import LavantError, StorageFailed

LEISURE_S = 0.2
"""How long settled tickets wait for publications to be written with."""
FULL_RETRY_S = 0.5
"""The pause between retries while the disk is full."""

_logger = logging.getLogger(__name__)


class Storing:
    """The thread calls `on_stored`, and `on_failed` at most once."""

    def __init__(
        self,
        store: PublicationStore,
        *,
        on_stored: Callable[[tuple[int, ...]], None],
        on_failed: Callable[[StorageFailed], None],
        take_settled: Callable[[], Sequence[int]],
    ) -> None:
        self._store = store
        self._on_stored = on_stored
        self._on_failed = on_failed
        self._take_settled = take_settled
        self._work: SimpleQueue[Sequence[tuple[int, bytes]] | None] = SimpleQueue()
        """Tickets with encoded publications; an empty list announces settled tickets."""
        self._ending = Event()
        self._thread = Thread(target=self._run, name="lavant-publisher-store", daemon=True)
        self._thread.start()

    def store(self, publications: Sequence[tuple[int, bytes]]) -> None:
        self._work.put(publications)

    def settle(self) -> None:
        """Announces that `take_settled` has something."""
        self._work.put(())

    def close(self) -> None:
        """Writes what is left, as far as the disk allows, and ends."""
        self._ending.set()
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (publications := self._next()) is not None:
                self._write(publications)
            if not self._write(()):
                _logger.warning("the disk is full: the last publications may be published again")
            self._store.close()
        except (OSError, LavantError) as error:
            self._on_failed(StorageFailed(f"the store of the publisher failed: {error}; look after the disk"))

    def _next(self) -> Sequence[tuple[int, bytes]] | None:
        work = self._work.get()
        while work == ():
            try:
                work = self._work.get(timeout=LEISURE_S)
            except Empty:
                break
        return work

    def _write(self, publications: Sequence[tuple[int, bytes]]) -> bool:
        """Returns when all is durable; False if the disk stayed full until the end."""
        for ticket, encoded in publications:
            self._store.stage(ticket, encoded)
        self._store.settle(self._take_settled())
        is_full = False
        while not self._store.commit():
            if not is_full:
                _logger.warning("the disk is full: nothing is stored until there is space")
                is_full = True
            if self._ending.wait(FULL_RETRY_S):
                return self._store.commit()
        if is_full:
            _logger.warning("there is space on the disk again")
        if publications:
            self._on_stored(tuple(ticket for ticket, _ in publications))
        return True
