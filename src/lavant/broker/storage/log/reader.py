"""Reads the publication log from any offset, while it grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lavant.broker.storage.log.blocks import BlockExtent, LogBatch
from lavant.broker.storage.log.files import FileBlocks
from lavant.broker.storage.log.identity import check_log
from lavant.broker.storage.log.objects import ObjectBlocks
from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import InvalidValue
from lavant.core.identities import UNKNOWN


class LogReader:
    """A view of a log that another process may be writing. Only headers are kept in memory, and one object of a URI.

    It is a view of *one* log: that with the given identity, or else the one found first. Another log at the same place
    is an error, because its offsets name other publications.
    """

    def __init__(self, place: str | Path | ObjectStorage, identity: str = UNKNOWN) -> None:
        self._storage = open_storage(place)
        self._identity = identity
        settings = self._storage.path("log.json")
        self._blocks = ObjectBlocks(self._storage) if settings is None else FileBlocks(settings.parent)

    @property
    def identity(self) -> str:
        """`UNKNOWN` until there is a log that has one."""
        self._check_identity()
        return self._identity

    def end(self) -> int:
        """The offset after the last complete publication."""
        self._check_identity()
        self._blocks.refresh()
        return self._blocks.end

    def start(self) -> int:
        """The offset of the first publication that is kept; the end, if there is none."""
        end = self.end()
        return self._blocks.start if not self._blocks.is_empty else end

    def blocks(self, start: int, end: int) -> list[BlockExtent]:
        """The extents of the blocks that hold the publications from `start` up to `end`."""
        self._check_range(start, end)
        return self._blocks.extents(start, end) if start < end else []

    def read(self, start: int, end: int) -> Iterator[LogBatch]:
        """The publications from `start` up to `end`."""
        part = self._blocks.part(start, end)
        if part is not None:
            self._check_identity()
            yield from part.read(start, end)
            return
        self._check_range(start, end)
        yield from self._blocks.read(start, end)

    def _check_range(self, start: int, end: int) -> None:
        self._check_identity()
        if end > self._blocks.end:
            self._blocks.refresh()
        if end > self._blocks.end:
            raise InvalidValue(f"the log {self._storage.uri} ends at offset {self._blocks.end}, asked for {end}")
        if start < end and start < self._blocks.start:
            raise InvalidValue(f"the log {self._storage.uri} starts at offset {self._blocks.start}, asked for {start}")

    def _check_identity(self) -> None:
        found = check_log(self._storage, self._identity)
        if self._identity == UNKNOWN:
            self._identity = found
