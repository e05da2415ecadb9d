"""The publisher's store: a journal of received and settled publications.

One thread uses it. `stage` and `settle` take records, and `commit` makes them durable, with one write and sync. Settled
tickets are written with the next publications, or in idle time: if they get lost, publications are sent twice, and the
broker recognises their ids.

When enough is settled, the journal is compacted: a snapshot of the unpublished publications replaces its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from lavant.broker.storage.journal import Disk, Journal, JournalConfig, apply_upkeep, write_snapshot
from lavant.client.publisher.records import HEAD_BYTES, encode_publication, encode_received, encode_settled, replay
from lavant.core.errors import StorageFull
from lavant.core.publications.publication import Publication

MB = 1 << 20
DEFAULT = JournalConfig(segment_bytes=8 * MB, compaction_bytes_min=16 * MB)


class PublicationStore:
    """`unpublished` returns publications that were staged or recovered and are not published, in order."""

    def __init__(
        self,
        disk: Disk,
        config: JournalConfig = DEFAULT,
        *,
        new_id: int,
        unpublished: Callable[[], Sequence[tuple[int, Publication]]],
    ) -> None:
        self._disk = disk
        self._config = config
        self._unpublished = unpublished
        self._journal, recovered = Journal.open(disk, config, new_id=new_id)
        chunks: Iterable[bytes] = () if recovered.chunks is None else recovered.chunks
        self.recovered, self.last_ticket = replay(chain(chunks, recovered.records))
        """Returns the publications that were not published when the publisher ended, and the highest ticket."""

    @property
    def publication_bytes_max(self) -> int:
        """Stages an encoded publication."""
        return self._config.record_bytes_max - HEAD_BYTES

    def stage(self, ticket: int, encoded: bytes) -> None:
        self._journal.stage(encode_received(ticket, encoded))
        self.last_ticket = ticket

    def settle(self, tickets: Sequence[int]) -> None:
        for record in encode_settled(tickets):
            self._journal.stage(record)

    def commit(self) -> bool:
        """Makes staged records durable. False if the disk is full: call again later.

        Raises `OSError` if the disk fails.
        """
        journal = self._journal
        journal.retry()
        while True:
            while (write := journal.begin()) is not None:
                self._disk.write(write.name, write.offset, write.data)
                self._disk.sync(write.name)
                journal.finish(write)
            if not self._look_after_files():
                return journal.durable == journal.position

    def close(self) -> None:
        """Marks the end of the journal; without the mark, opening searches it as after a crash."""
        with suppress(StorageFull):
            apply_upkeep(self._disk, self._journal.closing())

    def _look_after_files(self) -> bool:
        """Compacts the journal or makes a spare segment; returns whether it did."""
        if self._journal.wants_compaction:
            with suppress(StorageFull):  # there may be space the next time
                self._fold()
        upkeep = self._journal.upkeep()
        if upkeep is None:
            return False
        try:
            apply_upkeep(self._disk, upkeep)
        except StorageFull:
            self._journal.refuse_upkeep(upkeep)
            return False
        self._journal.finish_upkeep(upkeep)
        return True

    def _fold(self) -> None:
        upto = self._journal.durable
        size_bytes = write_snapshot(self._disk, self._chunks(), journal_id=self._journal.identity, position=upto)
        self._journal.adopt(upto, size_bytes)

    def _chunks(self) -> Iterator[bytes]:
        """A settled record comes first, so that the highest ticket is known even if nothing is unpublished."""
        yield from encode_settled([self.last_ticket])
        for ticket, publication in self._unpublished():
            yield encode_received(ticket, encode_publication(publication))
