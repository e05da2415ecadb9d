"""Sorted message numbers of a queue, to find those above a given one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence

CHUNK = 256


class SortedNumbers:
    """Ascending numbers in chunks, so that an insertion does not shift all others.

    Numbers are not removed one by one: the caller says which are still there, and the others are dropped from chunks
    visited. `tidy` visits one chunk after the other, in turn.

    >>> numbers = SortedNumbers([3, 5])
    >>> numbers.extend([8, 9])
    >>> numbers.add(4)
    >>> list(numbers.above(3, {3, 4, 9}))
    [4, 9]
    """

    __slots__ = ("_chunks", "_firsts", "_size", "_turn")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        ascending = sorted(numbers)
        self._chunks = [ascending[start : start + CHUNK] for start in range(0, len(ascending), CHUNK)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ascending)
        self._turn = 0

    def __len__(self) -> int:
        """Includes numbers that are gone but not yet dropped."""
        return self._size

    def extend(self, numbers: Sequence[int]) -> None:
        """Append ascending numbers, all larger than those present."""
        if not numbers:
            return
        if not self._chunks or len(self._chunks[-1]) >= CHUNK:
            self._chunks.append(list(numbers))
            self._firsts.append(numbers[0])
        else:
            self._chunks[-1].extend(numbers)
        self._size += len(numbers)

    def add(self, number: int) -> None:
        """Insert a number; no effect if it is present."""
        if not self._chunks or number > self._chunks[-1][-1]:
            self.extend([number])
            return
        place = max(bisect_right(self._firsts, number) - 1, 0)
        chunk = self._chunks[place]
        position = bisect_left(chunk, number)
        if position < len(chunk) and chunk[position] == number:
            return
        chunk.insert(position, number)
        self._firsts[place] = chunk[0]
        self._size += 1
        if len(chunk) > 2 * CHUNK:
            self._chunks[place : place + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._firsts.insert(place + 1, chunk[CHUNK])

    def above(self, number: int, there: Container[int]) -> Iterator[int]:
        """Numbers above `number` that are still there, ascending."""
        place = max(bisect_right(self._firsts, number) - 1, 0)
        while place < len(self._chunks):
            left = self._tidy_chunk(place, there)
            if left:
                yield from left[bisect_right(left, number) :]
                place += 1

    def tidy(self, there: Container[int]) -> None:
        """Drop numbers that are gone from the next chunk."""
        if self._turn >= len(self._chunks):
            self._turn = 0
        if self._chunks and self._tidy_chunk(self._turn, there):
            self._turn += 1

    def _tidy_chunk(self, place: int, there: Container[int]) -> list[int]:
        """What is left of a chunk; an empty one is removed."""
        chunk = self._chunks[place]
        left = [number for number in chunk if number in there]
        self._size -= len(chunk) - len(left)
        if left:
            self._chunks[place], self._firsts[place] = left, left[0]
        else:
            del self._chunks[place], self._firsts[place]
        return left
