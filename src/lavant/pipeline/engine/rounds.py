"""A round: offset ranges of all logs in one Spark job, and match results in reports of bounded size.

Access is in this process, which runs beside the service and reads its logs; the exit is in the service. Publications
travel to match tasks with their function, and results return with the tasks, so the executors need to see no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import msgspec
import numpy as np
from pyspark import SparkContext

from lavant.broker.matching import Matches
from lavant.broker.protocol.match_protocol import MatchResults, OffsetRange
from lavant.broker.slices import SliceReader
from lavant.broker.storage.log import LogReader
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.probes import ProbeBuffer
from lavant.pipeline.internals.stages import PlacedTask, run_tasks
from lavant.pipeline.operators.access import AccessBlock, encode_range
from lavant.pipeline.operators.exchange import MatchedBlock, merge_blocks
from lavant.pipeline.operators.open_slices import no_runs
from lavant.pipeline.operators.tasks import MatchTask, match_blocks
from lavant.pipeline.operators.travel import Luggage, SliceTravel

IDS_AT_ONCE = 1 << 20
"""Per report, unless a single publication has more: some 4 MiB."""


class RangeTask(msgspec.Struct, frozen=True):
    """A host's part of a range: the number of the range in the round, and the task."""

    range: int
    task: MatchTask


class Rounds:
    """Matches what the service has accepted."""

    def __init__(self, context: SparkContext, travel: SliceTravel, probes: ProbeBuffer | None = None) -> None:
        self.done = 0
        self.probes = probes
        self._context = context
        self._travel = travel
        self.stores: dict[str, SliceReader] = {}
        """Those matched so far, by identity."""

    def match(self, ranges: Sequence[OffsetRange], assignment: SliceAssignment) -> Iterator[MatchResults]:
        """All hosts match their slices of all logs; the results of one log are merged, and reported in parts."""
        tasks: list[PlacedTask] = []
        blocks: list[AccessBlock] = []
        packed: list[Luggage] = []
        for number, range_ in enumerate(ranges):
            store = SliceReader(range_.subscriptions, range_.subscriptions_identity)
            version = store.version(range_.version)
            place, luggage = self._travel.pack(store, version)
            packed.append(luggage)
            self.stores[store.identity] = store
            batches = LogReader(range_.log, range_.log_identity).read(range_.start, range_.end)
            blocks.append(encode_range(place.scheme, range_.log_identity, range_.start, batches))
            tasks += [
                PlacedTask(
                    slices.location,
                    msgspec.msgpack.encode(
                        RangeTask(
                            number,
                            MatchTask(
                                store=place,
                                version=version,
                                host=host,
                                slices=slices.match,
                                exits=(0, blocks[-1].count),
                                in_runs=False,
                            ),
                        )
                    ),
                )
                for host, (_, slices) in enumerate(assignment.matching)
            ]
        encoded = [msgspec.msgpack.encode(block) for block in blocks]
        with nullcontext() if self.probes is None else self.probes.batch():
            found = run_tasks(self._context, tasks, match_range(encoded, packed), "lavant serve match")
            results = [MatchedBlock.from_bytes(each) for each in found]
            if self.probes is not None:
                self.probes.put(probe for result in results for probe in result.probes)
        self.done += 1
        hosts = len(assignment.matching)
        for number, range_ in enumerate(ranges):
            yield from reports(range_, merge_blocks(results[number * hosts : (number + 1) * hosts], no_runs))


def match_range(encoded: list[bytes], luggage: list[Luggage]) -> Callable[[bytes], bytes]:
    """The function of the round's tasks."""

    def match(data: bytes) -> bytes:
        todo = msgspec.msgpack.decode(data, type=RangeTask)
        luggage[todo.range]()
        block = msgspec.msgpack.decode(encoded[todo.range], type=AccessBlock)
        return match_blocks(todo.task, [block])[0].to_bytes()

    return match


def reports(range_: OffsetRange, matches: Matches, ids_max: int = IDS_AT_ONCE) -> Iterator[MatchResults]:
    """Every publication of the range, including those without matches, in as few reports as their size allows."""
    first, count = 0, len(matches.offsets) - 1
    while first < count:
        fitting = int(np.searchsorted(matches.offsets, matches.offsets[first] + ids_max, side="right")) - 1
        behind = min(max(fitting, first + 1), count)
        part = Matches(matches.offsets[first : behind + 1], matches.ids)
        yield MatchResults.of(range_.log_name, range_.start + first, part)
        first = behind
