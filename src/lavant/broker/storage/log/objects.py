"""A log at a URI: each append is an object, named by the offset of its first publication as files are.

    00000000000000000000.log      block | writer
    00000000000000000350.log      block | writer …

The writer is 16 bytes, which tell its objects from those of another. An append succeeds if it creates its object: a
second writer finds the name taken. An object ends where the next one begins, so that a reader fetches only the last one
to know the end of the log. A log that was copied from files, with several blocks in an object, can be read as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

from lavant.broker.storage.log.blocks import (
    BlockExtent,
    BlockHeader,
    LogBatch,
    decode_body,
    encode_block,
    file_name,
    headers_of,
)
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import CorruptSnapshot, InvalidValue, StorageLocked
from lavant.core.identities import new_identity


class ObjectAppender:
    """Appends objects. A failed append may be repeated with the same publications, whatever became of it."""

    def __init__(self, storage: ObjectStorage, *, start: int) -> None:
        self._storage = storage
        self._writer = bytes.fromhex(new_identity())
        blocks = ObjectBlocks(storage)
        blocks.refresh()
        self.end = start if blocks.is_empty else blocks.end

    def append(self, records: pa.RecordBatch) -> int:
        first = self.end
        name = file_name(first)
        content = encode_block(records, first) + self._writer
        is_created = self._storage.create(name, [content])
        if not is_created and self._storage.read(name) != content:
            raise self._locked(first)
        if self._was_trimmed(name):
            self._storage.remove(name)
            raise self._locked(first)
        self.end = first + records.num_rows
        return first

    def _was_trimmed(self, name: str) -> bool:
        """Whether the name was free only because another writer has gone on from there and trimmed it.

        Behind a whole log it is a part of it, even if another writer has already taken over.
        """
        return bool(_objects_of(self._storage, after=name)) and _objects_of(self._storage)[0] == name

    def _locked(self, offset: int) -> StorageLocked:
        return StorageLocked(
            f"the log {self._storage.uri} has other publications at offset {offset} already: another process writes "
            "it, or an append failed before; end the other one, or open the log again"
        )

    def trim(self, offset: int) -> None:
        for name, following in pairwise(_objects_of(self._storage)):
            if _first_of(following) > offset:
                break
            self._storage.remove(name)

    def cut(self, offset: int) -> None:
        if self.end <= offset:
            return
        for name in reversed(_objects_of(self._storage)):
            if _first_of(name) < offset:
                break
            self._storage.remove(name)
            self.end = _first_of(name)
        blocks = ObjectBlocks(self._storage)
        blocks.refresh()
        if not blocks.is_empty:
            self.end = blocks.end

    def close(self) -> None:
        """There is nothing to close."""


class ObjectBlocks:
    """The objects by the offsets of their first publications, and the content of the one that was read last."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._names: list[str] = []
        self._starts: list[int] = []
        self._end: int | None = 0
        """None if only the last object knows it."""
        self._read = ("", b"")

    @property
    def is_empty(self) -> bool:
        return not self._names

    @property
    def start(self) -> int:
        return self._starts[0]

    @property
    def end(self) -> int:
        if self._end is None:
            blocks = self._headers(len(self._names) - 1)
            self._end = blocks[-1].first_offset + blocks[-1].publications if blocks else self._starts[-1]
        return self._end

    def refresh(self) -> int:
        """Find new objects, and return the end."""
        try:
            self._add(_objects_of(self._storage, after=self._names[-1] if self._names else ""))
            return self.end
        except FileNotFoundError:  # trimmed or cut since it was listed
            self._reset()
            self._add(_objects_of(self._storage))
            return self.end

    def part(self, start: int, end: int) -> ObjectBlocks | None:
        """The objects of a range alone, unless more is known already: a task need not list the whole log.

        It lists the names with those digits that the range has in common; None if they do not tell where it begins.
        """
        if self._names or start >= end:
            return None
        names = _objects_of(self._storage, prefix=_common(file_name(start), file_name(end - 1)))
        first = bisect_right(names, file_name(start)) - 1
        if first < 0:
            return None
        found = ObjectBlocks(self._storage)
        found._add(names[first : bisect_left(names, file_name(end))])
        return found

    def extents(self, start: int, end: int) -> list[BlockExtent]:
        """One for each object. Its bytes are reckoned from those of the last one, since the list does not say them."""
        each = -(-len(self._content(len(self._names) - 1)) // max(1, self.end - self._starts[-1]))
        chosen = slice(bisect_right(self._starts, start) - 1, bisect_left(self._starts, end))
        pairs = zip(self._starts[chosen], [*self._starts[1:], self.end][chosen], strict=True)
        return [BlockExtent(first, after - first, each * (after - first)) for first, after in pairs]

    def read(self, start: int, end: int) -> Iterator[LogBatch]:
        number = bisect_right(self._starts, start) - 1
        while start < end:
            if number == len(self._names):
                raise InvalidValue(f"the log {self._storage.uri} ends at offset {start}, asked for {end}")
            for block in self._blocks(number):
                after = block.first_offset + block.publications
                if after <= start or start >= end:
                    continue
                records = decode_body(self._content(number), block, self._uri(number))
                count = min(end, after) - start
                yield LogBatch(start, records.slice(start - block.first_offset, count))
                start += count
            number += 1

    def _add(self, names: list[str]) -> None:
        if names:
            self._names += names
            self._starts += map(_first_of, names)
            self._end = None

    def _reset(self) -> None:
        self._names, self._starts, self._end = [], [], 0

    def _blocks(self, number: int) -> list[BlockHeader]:
        """The blocks of an object, which must reach to the next one."""
        try:
            blocks = self._headers(number)
        except FileNotFoundError:
            missing = self._starts[number]
            self._reset()
            self.refresh()
            if self._starts and self._starts[0] > missing:
                raise InvalidValue(
                    f"the log {self._storage.uri} starts at offset {self.start}, asked for {missing}"
                ) from None
            raise CorruptSnapshot(
                f"{self._storage.uri}: {file_name(missing)} is missing; restore it from a copy"
            ) from None
        end = blocks[-1].first_offset + blocks[-1].publications if blocks else self._starts[number]
        following = self._starts[number + 1] if number + 1 < len(self._starts) else end
        if end != following:
            raise CorruptSnapshot(
                f"the log {self._storage.uri} jumps from publication {end} to {following}: publications are missing; "
                "restore its files from a copy"
            )
        return blocks

    def _headers(self, number: int) -> list[BlockHeader]:
        return headers_of(self._content(number), self._uri(number), first_offset=self._starts[number])

    def _content(self, number: int) -> bytes:
        name = self._names[number]
        if self._read[0] != name:
            self._read = (name, self._storage.read(name))
        return self._read[1]

    def _uri(self, number: int) -> str:
        return f"{self._storage.uri} {self._names[number]}"


def _objects_of(storage: ObjectStorage, after: str = "", prefix: str = "") -> list[str]:
    return [name for name in storage.names(prefix, after) if name.endswith(".log") and "/" not in name]


def _common(first: str, last: str) -> str:
    """
    >>> _common("0041.log", "0047.log")
    '004'
    """
    return first[: next((place for place, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), len(first))]


def _first_of(name: str) -> int:
    return int(name.removesuffix(".log"))
