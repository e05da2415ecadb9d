"""Jobs that have ended: which are still remembered, and which go next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from lavant.broker.queues.config import SECOND_MS
from lavant.broker.workflows.commands import KeepJobs


class Ended(NamedTuple):
    number: int
    ended_ms: int
    name: str
    size_bytes: int


class Archive:
    """In the order in which they ended. The jobs themselves are kept elsewhere.

    >>> archive = Archive(KeepJobs(count_max=2))
    >>> for number in (5, 3, 8):
    ...     archive.add(Ended(number, 1_000, "", 200))
    >>> [ended.number for ended in archive.surplus(1_000)], len(archive)
    ([5], 2)
    """

    __slots__ = ("_ended", "bytes", "keep")

    def __init__(self, keep: KeepJobs) -> None:
        self.keep = keep
        self.bytes = 0
        self._ended: deque[Ended] = deque()

    def __len__(self) -> int:
        return len(self._ended)

    def __iter__(self) -> Iterator[Ended]:
        return iter(self._ended)

    def add(self, ended: Ended) -> None:
        self._ended.append(ended)
        self.bytes += ended.size_bytes

    def surplus(self, now_ms: int) -> Iterator[Ended]:
        """Those that are not remembered any longer, one after the other."""
        ended, keep = self._ended, self.keep
        while ended and (
            len(ended) > keep.count_max or self.bytes > keep.bytes_max or self._expires_ms(ended[0]) <= now_ms
        ):
            self.bytes -= ended[0].size_bytes
            yield ended.popleft()

    def next_ms(self) -> int | None:
        """When the next one goes by itself."""
        return self._expires_ms(self._ended[0]) if self._ended else None

    def _expires_ms(self, ended: Ended) -> int:
        """Swept at whole seconds, so that a busy hub need not wake for each."""
        return -(-(ended.ended_ms + self.keep.ms_max) // SECOND_MS) * SECOND_MS
