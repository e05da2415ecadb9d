"""Runs: matches as ranges of a segment's rows, which take far less room than ids where matches lie together.

Sorted groups of filters match in runs: a stock quote matches some thousand subscriptions in a handful of them. A run is
12 bytes, whatever its length, and becomes ids only where they are needed, by anyone who has the segment's row ids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.broker.matching.interface import Ids
from lavant.core.kernels.kernels import kernel


class Runs(NamedTuple):
    """Publication `publication[i]` matches `length[i]` rows from row `start[i]`; publications ascend."""

    publication: NDArray[np.uint32]
    start: NDArray[np.uint32]
    length: NDArray[np.uint32]

    @property
    def matches(self) -> int:
        return int(self.length.sum(dtype=np.int64))

    @property
    def are_shorter(self) -> bool:
        """Whether they take less room than the ids."""
        return len(self.length) * len(self) < self.matches

    def between(self, first: int, last: int) -> Runs:
        """Those of the publications from `first` to before `last`, counted from `first`."""
        start, end = np.searchsorted(self.publication, (first, last))
        return Runs(self.publication[start:end] - np.uint32(first), self.start[start:end], self.length[start:end])


@kernel
def collect_runs(run_start: NDArray[np.int64], run_length: NDArray[np.int64]) -> Runs:
    """The runs of a search that are not empty."""
    count = np.count_nonzero(run_length)
    runs = Runs(np.empty(count, np.uint32), np.empty(count, np.uint32), np.empty(count, np.uint32))
    place = 0
    for p in range(run_length.shape[0]):
        for g in range(run_length.shape[1]):
            if run_length[p, g] > 0:
                runs.publication[place] = p
                runs.start[place] = run_start[p, g]
                runs.length[place] = run_length[p, g]
                place += 1
    return runs


@kernel
def count_matches(runs: Runs, counts: NDArray[np.int64]) -> None:
    """Add the length of each run to its publication's count."""
    for i in range(len(runs.publication)):
        counts[runs.publication[i]] += runs.length[i]


@kernel
def expand_runs(runs: Runs, row_ids: Ids, cursor: NDArray[np.int64], out: Ids) -> None:
    """Write the ids of each run from its publication's cursor on, and advance the cursor."""
    for i in range(len(runs.publication)):
        publication = runs.publication[i]
        start, place = np.uint64(runs.start[i]), np.uint64(cursor[publication])
        length = np.uint64(runs.length[i])
        source, target = row_ids[start : start + length], out[place : place + length]
        for k in range(length):
            target[k] = source[k]
        cursor[publication] += np.int64(length)
