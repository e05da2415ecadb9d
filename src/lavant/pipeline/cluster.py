"""The manager (e-StreamHub, section IV.B): carries out between batches what the enforcer decides.

    match tasks ──probes──► manager ──► enforcer ──plan──► manager
                                                            1. asks for more executors, and waits for them
                                                            2. has the slices that move opened there
                                                            3. replaces the placement: the next batch uses it
                                                            4. lets empty hosts go, after a batch without them

Hosts are executors; a host's part of a batch is one task, and the placement says which slices that task matches. A
batch reads the placement once, so a move happens between two batches: nothing is lost, nothing matched twice, and no
batch waits. Which executor runs which host's task is Spark's choice: slices lie in files that all executors map.

The whole state is in the coordination store; a manager that is started again goes on from there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from lavant.broker.slices import SliceReader
from lavant.control.placement import Enforcer, HostProbe, Placement, PlacementConfig, Plan, Probes, SliceProbe
from lavant.control.placement.values import HostId, SliceId
from lavant.core.decisions import Decision
from lavant.pipeline.coordination import Coordination, FileCoordination
from lavant.pipeline.executors import Executors
from lavant.pipeline.probes import Probe, take_probes
from lavant.pipeline.slice_cache import open_slice, store_version
from lavant.pipeline.sources import Assignment

STATE = "manager.json"
ASSIGNMENT = "assignment.json"


class ManagerState(msgspec.Struct, frozen=True):
    hosts: tuple[tuple[HostId, tuple[SliceId, ...]], ...]
    enforcer: str


class Manager:
    """Keeps the executors of one stream as many as its load needs.

    Start the stream with the options that `stream_options` gives, then call `tick` every few seconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        subscriptions: Path,
        directory: Path,
        config: PlacementConfig,
        coordination: Coordination | None = None,
        batches_done: Callable[[], int] | None = None,
    ) -> None:
        self._spark = spark
        self._store = str(subscriptions.absolute())
        self._directory = directory
        self._probes = directory / "probes"
        self._probes.mkdir(parents=True, exist_ok=True)
        self._config = config
        self._coordination = coordination if coordination is not None else FileCoordination(directory)
        self._batches_done = batches_done
        self._executors = Executors(spark)
        self._enforcer = Enforcer(config)
        self._last_ms: int | None = None
        self._release_after: int | None = None
        self.decisions: list[Decision] = []
        self.placement = self._recover()
        self._executors.resize(len(self.placement.hosts))
        self._publish()

    def stream_options(self) -> dict[str, str]:
        """For `lavant.pipeline.stream.start`."""
        return {"placement": str((self._directory / ASSIGNMENT).absolute()), "probes": str(self._probes.absolute())}

    def follow(self, batches_done: Callable[[], int]) -> None:
        """Tell the manager how many batches the stream has finished, so that it lets hosts go only after one."""
        self._batches_done = batches_done

    def tick(self, now_ms: int) -> Plan | None:
        """Take in what tasks measured since the last time, and act if it is time to."""
        self._release_idle()
        probes = self._measured(now_ms)
        if probes is None:
            return None
        self._enforcer.observe(probes, now_ms)
        plan = self._enforcer.decide(now_ms)
        if plan is not None:
            self.decisions.append(plan.decision)
            if plan.changes:
                self._carry_out(plan)
        self._save()
        return plan

    # ---- measuring --------------------------------------------------------------------------------------------------

    def _measured(self, now_ms: int) -> Probes | None:
        """The CPU share, memory and traffic of each slice since the last tick."""
        taken = take_probes(self._probes)
        if self._last_ms is None or now_ms <= self._last_ms:
            self._last_ms = now_ms
            return None
        seconds = (now_ms - self._last_ms) / 1000
        self._last_ms = now_ms
        used: dict[int, list[Probe]] = {}
        for probe in taken:
            used.setdefault(probe.slice, []).append(probe)
        hosts = tuple(
            HostProbe(id=host, slices=tuple(_slice_probe(id, used.get(_number(id), []), seconds) for id in slices))
            for host, slices in self.placement.by_host
        )
        return Probes(hosts=hosts)

    # ---- acting -----------------------------------------------------------------------------------------------------

    def _carry_out(self, plan: Plan) -> None:
        after = self.placement.after(plan)
        more = len(after.hosts) > len(self._executors.ids())
        if more and not self._executors.resize(len(after.hosts)):
            self.decisions.append(
                Decision(
                    loop="placement",
                    action="keep the placement",
                    reason="the cluster gave no more executors in time",
                    figures={"wanted": len(after.hosts), "running": len(self._executors.ids())},
                    time_ms=plan.decision.time_ms,
                )
            )
            return
        moved = [_number(move.slice) for move in plan.moves]
        _open_on_executors(self._spark, self._store, moved, len(after.hosts))
        self.placement = after
        self._publish()
        if len(after.hosts) < len(self._executors.ids()) and self._batches_done is not None:
            self._release_after = self._batches_done() + 1

    def _release_idle(self) -> None:
        """Let executors go once a batch has been through without them."""
        if self._release_after is None or self._batches_done is None or self._batches_done() <= self._release_after:
            return
        self._release_after = None
        self._executors.resize(len(self.placement.hosts))

    # ---- remembering ------------------------------------------------------------------------------------------------

    def _recover(self) -> Placement:
        saved = self._coordination.get(STATE)
        if saved is None:
            slices = SliceReader(Path(self._store)).settings.slices
            first = HostId(f"{self._config.host_prefix}-0000")
            return Placement.of([first], {SliceId(f"M:{number}"): first for number in range(slices)})
        state = msgspec.json.decode(saved, type=ManagerState)
        self._enforcer.restore(base64.b64decode(state.enforcer))
        return Placement(state.hosts)

    def _save(self) -> None:
        snapshot = base64.b64encode(self._enforcer.snapshot()).decode()
        self._coordination.put(STATE, msgspec.json.encode(ManagerState(self.placement.by_host, snapshot)))

    def _publish(self) -> None:
        """The assignment that the next batch will read; hosts without slices get no task."""
        hosts = tuple(tuple(_number(id) for id in slices) for _, slices in self.placement.by_host if slices)
        FileCoordination(self._directory).put(ASSIGNMENT, msgspec.json.encode(Assignment(hosts)))


def _number(id: SliceId) -> int:
    return int(id.removeprefix("M:"))


def _slice_probe(id: SliceId, probes: list[Probe], seconds: float) -> SliceProbe:
    return SliceProbe(
        id=id,
        operator="M",
        cpu=sum(probe.cpu_s for probe in probes) / seconds,
        memory_bytes=max((probe.memory_bytes for probe in probes), default=0),
        network_bytes_per_s=sum(4 * probe.matches for probe in probes) / seconds,
    )


def _open_on_executors(spark: SparkSession, store: str, slices: list[int], hosts: int) -> None:
    """Have every executor open the slices, so that the first batch after a move does not wait for it."""
    if not slices:
        return

    def open_all(_: Any) -> None:
        version = store_version(store)
        for number in slices:
            open_slice(store, number, version)

    spark.sparkContext.parallelize(range(hosts), hosts).foreach(open_all)
