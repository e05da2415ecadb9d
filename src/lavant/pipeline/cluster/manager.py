"""The manager (e-StreamHub, section IV.B): carries out the enforcer's plans between batches.

    tasks ──probes──► manager ──► enforcer ──plan──► manager
                                                            1. requests executors, until they have started
                                                            2. has the moving slices opened there
                                                            3. replaces the placement: the next batch uses it
                                                            4. releases empty hosts, after a batch without them

Hosts are executors; a host's part of a stage is one task, and the placement says which access, match and exit slices
that is, on which executor. A batch reads the placement once, so a move happens between two batches: nothing is lost,
nothing is matched twice. No batch waits either: an executor gets its first task when it has started Python and opened
its slices.

The whole state is in the coordination store; a restarted manager continues from there.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from lavant.broker.slices import SliceReader
from lavant.broker.slices.layout import ACCESS, EXIT, MATCH, number_of, operator_of
from lavant.broker.slices.reader import StoreVersion
from lavant.control.placement import Enforcer, HostProbe, Placement, PlacementConfig, PlacementPlan, Probes, SliceProbe
from lavant.core.decisions import Decision
from lavant.core.identities import UNKNOWN
from lavant.core.ids import HostId, SliceId
from lavant.pipeline.cluster.assignment import ACCESS_SLICES, ANYWHERE, EXIT_SLICES, HostSlices, SliceAssignment
from lavant.pipeline.cluster.coordination import Coordination, FileCoordination
from lavant.pipeline.cluster.probes import Probe, ProbeBuffer, ProbeSampler
from lavant.pipeline.internals.executors import POLL_S, Executors
from lavant.pipeline.internals.stages import PlacedTask, run_tasks
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice
from lavant.pipeline.operators.travel import Luggage, SliceTravel

STATE = "manager.json"
SAMPLES_MIN = 4
"""Of a window, if they are as short as they may be."""
EXECUTORS_S_MAX = 60.0
"""How long the cluster may take to start executors."""


class ManagerState(msgspec.Struct, frozen=True):
    hosts: tuple[tuple[HostId, tuple[SliceId, ...]], ...]
    enforcer: str
    store: str = UNKNOWN
    """Identity of the placed subscriptions."""


class Stores(msgspec.Struct):
    """Subscriptions whose slices move together: slice i of all stores is on the same host."""

    slices: int
    readers: dict[str, SliceReader]
    """By identity; more may come while the manager runs."""
    identity: str = UNKNOWN
    """Of the only store, whose number of slices may change."""

    @classmethod
    def of(cls, place: str | Path) -> Stores:
        store = SliceReader(place)
        return cls(len(store.version().slices), {store.identity: store}, store.identity)

    def refresh(self) -> int:
        """The present number of slices."""
        if self.identity in self.readers:
            self.slices = len(self.readers[self.identity].version().slices)
        return self.slices


class ClusterManager:
    """Scales the executors of one stream with its load.

    Start the stream with `manager=`, then call `tick` every few seconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        subscriptions: str | Path | Stores,
        directory: str | Path,
        config: PlacementConfig,
        coordination: Coordination | None = None,
    ) -> None:
        self._spark = spark
        self._stores = subscriptions if isinstance(subscriptions, Stores) else Stores.of(subscriptions)
        self.probes = ProbeBuffer()
        """Where the stream puts its measurements."""
        self._config = config
        self._coordination = coordination if coordination is not None else FileCoordination(directory)
        self._travel: SliceTravel | None = None
        self._batches_done: Callable[[], int] | None = None
        self._executors = Executors(spark)
        self._enforcer = Enforcer(config)
        self._sampler = ProbeSampler(
            self.probes, min(config.rules.window_ms // SAMPLES_MIN, config.probe_gap_ms_max // 2)
        )
        self._release_after: int | None = None
        self._pending: PlacementPlan | None = None
        self._give_up_s = 0.0
        self._executor_of: dict[HostId, str] = {}
        self.decisions: list[Decision] = []
        self.placement = self._complete(self._recover())
        self._start_executors()
        self._publish()

    def _start_executors(self) -> None:
        """Start exactly those of the placement; fewer, if the cluster has no more."""
        give_up_s = time.monotonic() + EXECUTORS_S_MAX
        while not self._executors.request(len(self.placement.hosts)) and time.monotonic() < give_up_s:
            time.sleep(POLL_S)
        self._settle(self.placement)
        self._executors.keep(self._executor_of.values())

    def assignment(self, slices: int) -> SliceAssignment:
        """For the next batch of a store with so many slices."""
        assignment = self._assignment
        is_whole = slices == sum(len(host.match) for host in assignment.hosts)
        return assignment if is_whole else assignment.resliced(slices)

    def attach(self, travel: SliceTravel, batches_done: Callable[[], int]) -> None:
        """The stream that it manages says how slices reach executors, and how many batches it has finished: hosts are
        released only after one.
        """
        self._travel = travel
        self._batches_done = batches_done

    def tick(self, now_ms: int) -> PlacementPlan | None:
        """Process new probes, and act if it is time; return the plan that took effect, if any.

        While executors start, which takes seconds, ticks continue to measure; their plan is returned when it is carried
        out.
        """
        self._release_idle()
        self._follow_slices()
        probes = self._measured(now_ms)
        if probes is not None:
            self._enforcer.observe(probes, now_ms)
        if self._pending is not None:
            return self._go_on(self._pending)
        if probes is None:
            return None
        plan = self._enforcer.decide(now_ms)
        if plan is not None:
            self.decisions.append(plan.decision)
            if plan.changes:
                self._pending = plan
                self._give_up_s = time.monotonic() + EXECUTORS_S_MAX
                return self._go_on(plan)
        self._save()
        return plan

    # ---- measuring --------------------------------------------------------------------------------------------------

    def _measured(self, now_ms: int) -> Probes | None:
        """The CPU share, memory and traffic of each slice since the last sample, if it is time for another one."""
        sample = self._sampler.sample(self._stores.identity, now_ms)
        if sample is None:
            return None
        taken, seconds = sample
        used: dict[SliceId, list[Probe]] = {}
        for probe in taken:
            used.setdefault(SliceId(f"{probe.operator}:{probe.slice}"), []).append(probe)
        hosts = tuple(
            HostProbe(id=host, slices=tuple(_slice_probe(id, used.get(id, []), seconds) for id in slices))
            for host, slices in self.placement.by_host
        )
        return Probes(hosts=hosts, span_ms=round(seconds * 1000))

    # ---- acting -----------------------------------------------------------------------------------------------------

    def _go_on(self, plan: PlacementPlan) -> PlacementPlan | None:
        """Carry out a plan once all the executors it needs are there."""
        after = self.placement.after(plan)
        if self._executors.request(len(after.hosts)):
            self._pending = None
            self._carry_out(plan, after)
            self._save()
            return plan
        if time.monotonic() > self._give_up_s:
            self._pending = None
            self.decisions.append(
                Decision(
                    loop="placement",
                    action="keep the placement",
                    reason="the cluster gave no more executors in time",
                    figures={"wanted": len(after.hosts), "running": len(self._executors.ids())},
                    time_ms=plan.decision.time_ms,
                )
            )
        return None

    def _carry_out(self, plan: PlacementPlan, after: Placement) -> None:
        self._settle(after)
        moved: dict[HostId, list[int]] = {}
        for move in plan.moves:
            if operator_of(move.slice) == MATCH:  # the others have no state
                moved.setdefault(move.destination, []).append(number_of(move.slice))
        self._open(moved)
        self.placement = after
        self._publish()
        if len(after.hosts) < len(self._executors.ids()) and self._batches_done is not None:
            self._release_after = self._batches_done() + 1

    def _settle(self, placement: Placement) -> None:
        """Assign executors to hosts: a host keeps its own while that exists, a new one gets a free one."""
        running = self._executors.ids()
        kept = {host: id for host, id in self._executor_of.items() if host in placement.hosts and id in running}
        free = [id for id in running if id not in kept.values()]
        for host in placement.hosts:
            if host not in kept and free:
                kept[host] = free.pop(0)
        self._executor_of = kept

    def _open(self, slices: dict[HostId, list[int]]) -> None:
        """Have each host open its new slices, so that the first batch after the move does not wait."""
        if self._travel is None or not slices:
            return
        for store in list(self._stores.readers.values()):
            version = store.version()
            place, luggage = self._travel.pack(store, version)
            tasks = [
                PlacedTask(self._location(host), msgspec.msgpack.encode((place, version, numbers)))
                for host, numbers in slices.items()
            ]
            run_tasks(self._spark.sparkContext, tasks, slice_opener(luggage), "lavant opens slices")

    def _location(self, host: HostId) -> str:
        id = self._executor_of.get(host)
        location = None if id is None else self._executors.location(id)
        return ANYWHERE if location is None else location

    def _release_idle(self) -> None:
        """Release executors after a batch has run without them."""
        if self._release_after is None or self._batches_done is None or self._batches_done() <= self._release_after:
            return
        self._release_after = None
        self._executors.keep(self._executor_of.values())

    # ---- remembering ------------------------------------------------------------------------------------------------

    def _recover(self) -> Placement:
        saved = self._coordination.get(STATE)
        if saved is None:
            first = HostId(f"{self._config.host_prefix}-0000")
            return Placement.of([first], {})
        state = msgspec.json.decode(saved, type=ManagerState)
        assignment = self._assign(Placement(state.hosts), state.store)
        assignment.check(sum(len(host.match) for host in assignment.hosts), self._stores.identity)
        self._enforcer.restore(base64.b64decode(state.enforcer))
        return Placement(state.hosts)

    def _complete(self, placement: Placement) -> Placement:
        """The placement with all slices that there are, and no others; new ones go to the host with the fewest."""
        counts = {ACCESS: ACCESS_SLICES, MATCH: self._stores.refresh(), EXIT: EXIT_SLICES}
        wanted = [SliceId(f"{operator}:{number}") for operator, count in counts.items() for number in range(count)]
        hosts = {host: [id for id in slices if id in wanted] for host, slices in placement.by_host}
        placed = {id for slices in hosts.values() for id in slices}
        for id in wanted:
            if id not in placed:
                min(hosts.values(), key=len).append(id)
        return Placement.of(list(hosts), {id: host for host, slices in hosts.items() for id in slices})

    def _follow_slices(self) -> None:
        """Place the slices of a store whose number has changed."""
        if self._pending is None and self._stores.refresh() != sum(len(host.match) for host in self._assignment.hosts):
            self.placement = self._complete(self.placement)
            self._publish()
            self._save()

    def _save(self) -> None:
        snapshot = base64.b64encode(self._enforcer.snapshot()).decode()
        state = ManagerState(self.placement.by_host, snapshot, self._stores.identity)
        self._coordination.put(STATE, msgspec.json.encode(state))

    def _publish(self) -> None:
        """Publish the assignment for the next batch."""
        self._assignment = self._assign(self.placement, self._stores.identity)

    def _assign(self, placement: Placement, store: str) -> SliceAssignment:
        def numbers(slices: Iterable[SliceId], operator: str) -> tuple[int, ...]:
            return tuple(number_of(id) for id in slices if operator_of(id) == operator)

        hosts = tuple(
            HostSlices(
                access=numbers(slices, ACCESS),
                match=numbers(slices, MATCH),
                exit=numbers(slices, EXIT),
                location=self._location(host),
            )
            for host, slices in placement.by_host
        )
        return SliceAssignment(hosts, store)


def _slice_probe(id: SliceId, probes: list[Probe], seconds: float) -> SliceProbe:
    return SliceProbe(
        id=id,
        operator=operator_of(id),
        cpu=sum(probe.cpu_s for probe in probes) / seconds,
        memory_bytes=max((probe.memory_bytes for probe in probes), default=0),
        network_bytes_per_s=sum(4 * probe.matches for probe in probes) / seconds,
    )


def slice_opener(luggage: Luggage) -> Callable[[bytes], bytes]:
    """The function of tasks that open slices in a host's Python worker."""

    def open_slices(task: bytes) -> bytes:
        luggage()
        place, version, numbers = msgspec.msgpack.decode(task, type=tuple[SlicePlace, StoreVersion, list[int]])
        for number in numbers:
            if number < len(version.slices):
                open_slice(place, number, version)
        return b""

    return open_slices
