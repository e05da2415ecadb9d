"""Micro-batches that follow the log: their tasks match ranges of it as they are appended.

Spark's own work for a micro-batch takes longer than to match a few hundred publications. So where tasks are on the
driver's machine, and nothing has piled up, the tasks of a micro-batch go on for a second, and ask the driver for one
range after the other:

    Spark    batch 7: [100, 140) │ plan, start …                                  results │ batch 8: [300, 310) …
    task 0                       │ match and exit [100, 140) │ [180, 240) │ …    │
    task 1                       │                  [140, 180) │ [240, 300) │ … │
    driver                         commit [100, 140), [140, 180), [180, 240) … in order, a manifest for each

Spark knows the offsets with which the batch began; where it ended is in the manifests, and in the plan that the source
reads before the next one. Spark counts the publications when the tasks end.

Tasks speak with the driver over a Unix socket in the stream's temporary directory, which only its user can open:

    task    its batch │ report │ report │ …
    driver  range     │ range  │ …      │ an empty message: the batch ends
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import msgspec

from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.log import LogReader
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.parts import part_name
from lavant.pipeline.operators.tasks import ExitReport, ExitTask, MatchTask, exit_blocks, exit_bounds, match_blocks
from lavant.pipeline.stream.small_batches import EXIT_IDS

FOLLOW_S = 1.0
"""How long a batch follows the log; another job of the session may have to wait as long for a core."""
IDLE_S = 0.2
"""Without anything new, after which the batch ends."""
PORTION_S = 0.03
"""At least so long from one look for publications to the next: each range is a file in the output."""
POLL_S = 0.004
END_S_MAX = 10.0
"""For ranges on their way when the stream is stopped."""
ADDRESS_BYTES_MAX = 100
"""The longest path of a Unix socket on all systems."""

T = TypeVar("T")


class AssignedRange(msgspec.Struct, frozen=True, kw_only=True):
    """What a task gets: publications of the log, and everything that it needs to notify them."""

    number: int
    """Of the manifest."""
    start: int
    end: int
    store: SlicePlace
    version: StoreVersion
    output: str
    run: str
    """Of the stream, for the names of parts."""


class RangeReport(msgspec.Struct, frozen=True):
    """What it returns: the block without its content, and its parts."""

    block: AccessBlock
    exits: list[ExitReport]


class BatchRange(msgspec.Struct, frozen=True, array_like=True):
    """A micro-batch as Spark knows it."""

    start: int
    end: int
    tasks: int


class FollowLimits(NamedTuple):
    """What the driver allows a batch that follows the log, at the moment."""

    follows: bool
    """Whether it may go on after what Spark knows of."""
    has_room: bool
    """Whether it may begin a portion: the sink keeps up."""
    waiting_max: int
    """If more publications wait, the batch ends, for a large one."""
    portion_rows: int
    """Publications of a portion: as many as have matches that fit into memory."""
    task_rows: int
    """Publications for which a task more is worth it."""


class FollowedBatch:
    """One micro-batch: which publications the next range gets, and when the batch ends. Pure.

    It does all publications that Spark knows of, and then, for `follow_s`, those that come, unless none come for
    `idle_s`. What is found at a time is a portion, which is divided by the number of tasks.
    """

    def __init__(
        self, known: BatchRange, now_s: float, limits: FollowLimits, *, follow_s: float, idle_s: float
    ) -> None:
        self.known = known
        self.position = known.start
        self.ended = False
        self._new_s = now_s
        self._end_s, self._idle_s = now_s + follow_s, idle_s
        self._begin(known.end, now_s, limits)

    def look(self, log_end: int, now_s: float, limits: FollowLimits) -> None:
        """The log ends here now: begin the next portion, or end the batch."""
        if self.position < self._portion_end or self.ended:
            return
        waiting = log_end - self.position
        if waiting:
            self._new_s = now_s
        is_over = now_s >= self._end_s or now_s - self._new_s >= self._idle_s
        if is_over or not limits.follows or waiting > limits.waiting_max:
            self.ended = True
        elif waiting and limits.has_room and now_s - self._begun_s >= PORTION_S:
            self._begin(min(log_end, self.position + limits.portion_rows), now_s, limits)

    def take(self) -> tuple[int, int] | None:
        """The next range, if there is one."""
        start = self.position
        self.position = min(start + self._range_rows, self._portion_end)
        return (start, self.position) if start < self.position else None

    def _begin(self, end: int, now_s: float, limits: FollowLimits) -> None:
        """A portion."""
        self._portion_end, self._begun_s = end, now_s
        rows = end - self.position
        self._range_rows = math.ceil(rows / min(self.known.tasks, max(1, rows // limits.task_rows)))


class RangeDispatcher:
    """The driver's side. `assign` makes a range of two offsets, `finish` gets the reports, in the order of the ranges,
    and `fail` gets an error.
    """

    def __init__(
        self,
        address: Path,
        log: LogReader,
        *,
        assign: Callable[[int, int], AssignedRange],
        finish: Callable[[AssignedRange, RangeReport], None],
        fail: Callable[[BaseException], None],
        limits: Callable[[], FollowLimits],
        follow_s: float = FOLLOW_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self.address = str(address)
        self._log = log
        self._assign, self._finish, self._fail, self._limits = assign, finish, fail, limits
        self._follow_s, self._idle_s = follow_s, idle_s
        self._batch: FollowedBatch | None = None
        self._looking = threading.Lock()
        self._returned: deque[AssignedRange] = deque()
        """Ranges of tasks that were lost."""
        self._change = threading.Condition()
        self._under_way: dict[int, tuple[AssignedRange, RangeReport | None]] = {}
        """By number, in order."""
        self._tasks = 0
        """Connected now."""
        self._is_ending = self._is_closed = False
        self._listener = Listener(self.address, "AF_UNIX")
        threading.Thread(target=self._accept, name="lavant-ranges", daemon=True).start()

    @property
    def position(self) -> int:
        """The offset up to which ranges were given to tasks."""
        return 0 if self._batch is None else self._batch.position

    def end(self) -> None:
        """Assign nothing more; returns when no task writes anything any longer."""
        self._is_ending = True
        with self._change:
            self._change.wait_for(lambda: not self._tasks, END_S_MAX)

    def close(self) -> None:
        self.end()
        if not self._is_closed:
            self._is_closed = True
            Client(self.address, "AF_UNIX").close()  # wakes up the thread that accepts
            self._listener.close()

    def _accept(self) -> None:
        try:
            while True:
                connection = self._listener.accept()
                if self._is_closed:
                    connection.close()
                    return
                threading.Thread(target=self._serve, args=(connection,), name="lavant-range", daemon=True).start()
        except BaseException as error:  # no file or thread is left: tasks would wait for ever
            self._fail(error)

    def _serve(self, connection: Connection) -> None:
        """One task, from its start to its end."""
        with connection, self._counted():
            try:
                known = _received(connection, BatchRange)
                while known is not None and (assigned := self._next(known)) is not None:
                    _send(connection, msgspec.msgpack.encode(assigned))
                    report = _received(connection, RangeReport)
                    if report is None:
                        self._returned.append(assigned)  # for another task, or for this one when Spark repeats it
                        return
                    self._done(assigned, report)
                _send(connection, b"")
            except BaseException as error:
                self._fail(error)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._change:
            self._tasks += 1
        try:
            yield
        finally:
            with self._change:
                self._tasks -= 1
                self._change.notify_all()

    def _next(self, known: BatchRange) -> AssignedRange | None:
        """Waits for the next range; None if the batch has ended."""
        with self._looking:
            return self._look(known)

    def _look(self, known: BatchRange) -> AssignedRange | None:
        batch = self._batch
        if batch is None or batch.known != known:
            if known.start < self.position:
                return None  # a task of a batch that is over, which Spark has given up
            batch = FollowedBatch(known, time.monotonic(), self._limits(), follow_s=self._follow_s, idle_s=self._idle_s)
            self._batch = batch
        while not self._is_ending:
            if self._returned:
                return self._returned.popleft()
            batch.look(self._log.end(), time.monotonic(), self._limits())
            if batch.ended:
                break
            taken = batch.take()
            if taken is not None:
                assigned = self._assign(*taken)
                with self._change:
                    self._under_way[assigned.number] = assigned, None
                return assigned
            time.sleep(POLL_S)
        return None

    def _done(self, assigned: AssignedRange, report: RangeReport) -> None:
        with self._change:
            self._under_way[assigned.number] = assigned, report
            for number, (first, known) in [*self._under_way.items()]:
                if known is None:
                    break
                self._finish(first, known)
                del self._under_way[number]


class RangeClient:
    """The task's side."""

    def __init__(self, address: str, known: BatchRange) -> None:
        self._connection = Client(address, "AF_UNIX")
        self._connection.send_bytes(msgspec.msgpack.encode(known))

    def __enter__(self) -> RangeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def next(self) -> AssignedRange | None:
        data = self._connection.recv_bytes()
        return msgspec.msgpack.decode(data, type=AssignedRange) if data else None

    def report(self, report: RangeReport) -> None:
        self._connection.send_bytes(msgspec.msgpack.encode(report))


def _received(connection: Connection, type: type[T]) -> T | None:
    """None if the task was lost."""
    try:
        return msgspec.msgpack.decode(connection.recv_bytes(), type=type)
    except (EOFError, OSError):
        return None


def _send(connection: Connection, data: bytes) -> None:
    with contextlib.suppress(OSError):  # if the task was lost, nothing is received either
        connection.send_bytes(data)


def match_assigned(assigned: AssignedRange, block: AccessBlock, exit_ids: int = EXIT_IDS) -> RangeReport:
    """Match and exit; a part has about `exit_ids` matches at most."""
    slices = tuple(range(len(assigned.version.slices)))
    task = MatchTask(store=assigned.store, version=assigned.version, host=0, slices=slices, exits=(0, block.count))
    [found] = match_blocks(task, [block])
    parts = min(block.count, 1 + sum(probe.matches for probe in found.probes) // exit_ids)
    bounds = exit_bounds(block.count, [(0,)] * parts)
    exits = []
    for part in range(parts):
        piece = found.between(bounds[part], bounds[part + 1])
        exit_task = ExitTask(
            store=assigned.store,
            version=assigned.version,
            host=0,
            slices=(),
            output=assigned.output,
            part=part_name(assigned.number, assigned.run, part),
        )
        exits.append(exit_blocks(exit_task, [piece if part else piece._replace(probes=found.probes)]))
    return RangeReport(msgspec.structs.replace(block, pieces=[], refused=[]), exits)
