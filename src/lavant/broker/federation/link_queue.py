"""The queue of a link: publications that a neighbour has not confirmed, in batches, numbered without gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import msgspec
import numpy as np

from lavant.broker.federation.frames import LinkPublications
from lavant.broker.queues.accounting.memory import MESSAGE
from lavant.core.errors import InvalidValue

HEADER_BYTES = 11
"""Columns of one publication."""


def size_of(batch: LinkPublications) -> int:
    return sum(map(len, batch.bodies)) + sum(map(len, batch.points)) + HEADER_BYTES * len(batch.bodies)


def check_columns(batch: LinkPublications) -> None:
    """Raise if the columns of a batch that came over a link do not fit together."""
    count = len(batch.bodies)
    is_whole = (
        count > 0
        and batch.first > 0
        and len(batch.points) in (0, count)
        and (len(batch.origin_of), len(batch.origin_numbers), len(batch.hops)) == (2 * count, 8 * count, count)
    )
    if not is_whole or int(np.frombuffer(batch.origin_of, "<u2").max()) >= len(batch.origins):
        raise InvalidValue(f"a batch of {count} publications from number {batch.first} on is malformed")


def memory_of_batch(batch: LinkPublications) -> int:
    """Approximate memory of a batch."""
    return MESSAGE + size_of(batch) + 56 * len(batch.bodies)


def part_of(batch: LinkPublications, start: int, stop: int) -> LinkPublications:
    """The publications from index `start` to `stop`."""
    if start == 0 and stop == len(batch.bodies):
        return batch
    return msgspec.structs.replace(
        batch,
        first=batch.first + start,
        bodies=batch.bodies[start:stop],
        points=batch.points[start:stop],
        origin_of=batch.origin_of[2 * start : 2 * stop],
        origin_numbers=batch.origin_numbers[8 * start : 8 * stop],
        hops=batch.hops[start:stop],
    )


def joined(batches: Iterable[LinkPublications]) -> Iterator[LinkPublications]:
    """Consecutive batches as few: those of one namespace and scheme become one."""
    for _, alike in groupby(batches, key=lambda batch: (batch.namespace, bool(batch.points))):
        yield _join(list(alike))


def _join(batches: list[LinkPublications]) -> LinkPublications:
    if len(batches) == 1:
        return batches[0]
    origins: dict[str, int] = {}
    origin_of = b""
    for batch in batches:
        places = np.array([origins.setdefault(origin, len(origins)) for origin in batch.origins], "<u2")
        origin_of += places[np.frombuffer(batch.origin_of, "<u2")].tobytes()
    return msgspec.structs.replace(
        batches[0],
        bodies=[body for batch in batches for body in batch.bodies],
        points=[point for batch in batches for point in batch.points],
        origins=list(origins),
        origin_of=origin_of,
        origin_numbers=b"".join(batch.origin_numbers for batch in batches),
        hops=b"".join(batch.hops for batch in batches),
    )


class LinkQueue:
    """Batches in the order of their numbers."""

    def __init__(self, batches: Iterable[LinkPublications] = (), number: int = 0) -> None:
        self.number = number
        """The last number that was given out."""
        self.bytes = 0
        self.memory = 0
        self._batches: deque[LinkPublications] = deque()
        for batch in batches:
            self._enter(batch)

    def __len__(self) -> int:
        return self.number - self._batches[0].first + 1 if self._batches else 0

    def check_received(self, neighbour: str, number: int, sent: int) -> None:
        """Raise if the neighbour cannot go on after this number: it was deleted here, or was not sent from here, so
        what has it now is something else."""
        if not self.number - len(self) <= number <= min(sent, self.number):
            raise InvalidValue(
                f"{neighbour!r} has publications up to {number}, the queue for it {len(self)} up to {self.number}, of "
                f"which those up to {sent} were sent: a data directory was replaced by an older copy; remove the "
                "neighbour"
            )

    @property
    def oldest_ms(self) -> int | None:
        return self._batches[0].entered_ms if self._batches else None

    def add(self, batch: LinkPublications) -> None:
        """Add publications; `first` is the next number."""
        assert batch.first == self.number + 1, "numbers have no gaps"
        self._enter(batch)

    def acknowledge(self, number: int) -> None:
        """Remove all publications up to this number."""
        if number > self.number:
            raise InvalidValue(f"a neighbour confirms publication {number}, but only {self.number} were sent to it")
        while self._batches and self._batches[0].first <= number:
            batch = self._batches.popleft()
            self.bytes -= size_of(batch)
            self.memory -= memory_of_batch(batch)
            if batch.last > number:
                rest = part_of(batch, number - batch.first + 1, len(batch.bodies))
                self._batches.appendleft(rest)
                self.bytes += size_of(rest)
                self.memory += memory_of_batch(rest)

    def after(self, number: int, until: int, count_max: int, bytes_max: int) -> Iterator[LinkPublications]:
        """Batches with the numbers above `number` and up to `until`, at least one publication."""
        for batch in islice(self._batches, self._index_of(number + 1), None):
            start = max(0, number + 1 - batch.first)
            stop = min(len(batch.bodies), until - batch.first + 1, start + count_max)
            if stop <= start:
                return
            points = [len(point) for point in batch.points[start:stop]] if batch.points else [0] * (stop - start)
            bodies = batch.bodies[start:stop]
            sizes = np.cumsum([len(body) + size + HEADER_BYTES for body, size in zip(bodies, points, strict=True)])
            stop = start + max(1, int(np.searchsorted(sizes, bytes_max, side="right")))
            part = part_of(batch, start, stop)
            yield part
            count_max -= len(part.bodies)
            bytes_max -= int(sizes[stop - start - 1])
            number = part.last
            if (
                part.last < batch.last or count_max <= 0 or bytes_max <= 0
            ):  # the rest of a batch goes before the next one
                return

    def batches(self) -> list[LinkPublications]:
        return list(self._batches)

    def _index_of(self, number: int) -> int:
        """The index of the batch with this number: batches before it were sent already, and most are."""
        low, high = 0, len(self._batches)
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle].last < number:
                low = middle + 1
            else:
                high = middle
        return low

    def _enter(self, batch: LinkPublications) -> None:
        self._batches.append(batch)
        self.number = batch.last
        self.bytes += size_of(batch)
        self.memory += memory_of_batch(batch)
