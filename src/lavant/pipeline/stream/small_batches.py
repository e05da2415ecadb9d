"""The size of batches, and the shorter way of small ones: each host's task reads and matches the batch, in one stage.

A task costs more than the rows of a small batch, so what a large one gains from three stages, a small one loses. And a
batch costs more than its tasks, so where publications have piled up, batches are large. The driver keeps a `BatchPlan`
in a file for the source, which runs on the same machine in a process of its own; the source decides for each batch, and
its tasks return `AccessedBlock`s, with or without matches. The exit of a small batch is in the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.tasks import MatchTask, match_blocks

SMALL_ROWS_MAX = 8192
"""Publications of a small batch, unless the stream says otherwise."""
SMALL_MATCHES_MAX = 1 << 25
"""Matches of a small batch, whose exit is in the driver; with more it takes the long way, and those of its size too."""

ROWS_AT_FIRST, ROWS_MAX = 8192, 32_768
"""Publications of a batch at first, and at most, unless the stream's options say otherwise."""
EXIT_IDS = 1 << 25
"""Matches that each exit task of a large batch should get: 128 MiB of ids."""


TASK_S = 0.01
"""Processor time that a task takes for itself; where hosts have no place of their own, a task gets as much to match."""


def task_rows(publications: int, match_s: float) -> int:
    """Publications that are worth a task, if so many took so long to match; a power of two, at most `ROWS_MAX`.

    >>> task_rows(1000, 0.005), task_rows(1000, 0.2), task_rows(1000, 0.0)
    (1024, 32, 32768)
    """
    worth = int(TASK_S * publications / match_s) if match_s else ROWS_MAX
    return min(ROWS_MAX, 1 << max(worth, 1).bit_length() - 1)


def large_rows(publications: int, matches: int, exits: int) -> int:
    """Publications of the next batch if so many wait, as the last one was; a power of two.

    >>> large_rows(1000, 3_577_000, 2), large_rows(1000, 1000, 2), large_rows(1000, 10**9, 1)
    (16384, 32768, 32)
    """
    fitting = EXIT_IDS * exits * publications // max(matches, 1)
    return min(ROWS_MAX, 1 << max(fitting, 1).bit_length() - 1)


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many publications a batch gets, and who matches a small one."""

    store: SlicePlace
    hosts: tuple[tuple[int, ...], ...]
    """The match slices of each."""
    small_rows_max: int
    rows_max: int
    task_rows: int = 1
    """Publications for which a task more is worth its start; 1 if each host matches in its own place."""

    position: int = 0
    """The offset up to which tasks have matched; further than Spark knows, after a batch that followed the log."""
    dispatcher: str | None = None
    """The address at which tasks ask for ranges (see `log_ranges`), if small batches follow the log."""

    def save(self, path: Path) -> None:
        """Not durable: it is good for one run."""
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.msgpack.encode(self))
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> BatchPlan | None:
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:  # tasks cannot open the store
            return None

    def tasks(self, count: int) -> list[list[MatchTask]]:
        """The match tasks of each access task, for a batch of so many publications; none if it is not small."""
        if count > self.small_rows_max:
            return []
        version = _store(self.store).version()
        if sorted(number for host in self.hosts for number in host) != list(range(len(version.slices))):
            return []  # the driver does not know yet that their number has changed
        tasks = [
            MatchTask(store=self.store, version=version, host=host, slices=slices, exits=(0, count))
            for host, slices in enumerate(self.hosts)
        ]
        parts = min(len(tasks), max(1, count // self.task_rows))  # with rows in each: Spark drops a task without
        return [tasks[number::parts] for number in range(parts)]


class AccessedBlock(msgspec.Struct, frozen=True, array_like=True):
    """What an access task returns: its block, or the matches of a small batch and the block without its content."""

    block: AccessBlock
    found: list[bytes] = []
    """A `MatchedBlock` for each host."""
    version: StoreVersion | None = None
    """Of the subscriptions that were matched."""
    too_much: bool = False
    """The batch was small, its matches were not."""
    is_done: bool = False
    """The block was matched in ranges, which the driver has already."""


def match_small(tasks: Sequence[MatchTask], block: AccessBlock, matches_max: int) -> AccessedBlock:
    """Match a batch for some of its hosts, unless that finds too much."""
    found = [each for task in tasks for each in match_blocks(task, [block])]
    if sum(probe.matches for each in found for probe in each.probes) > matches_max:
        return AccessedBlock(block, too_much=True)
    content = [each.to_bytes() for each in found]
    return AccessedBlock(msgspec.structs.replace(block, pieces=[], refused=[]), content, tasks[0].version)


@lru_cache(maxsize=8)
def _store(place: SlicePlace) -> SliceReader:
    return SliceReader(place.storage, place.identity)
