"""`workflows`: jobs over bad links and through crashes; none is lost, none ends twice, and all end.

The server is the real one, with its journal on a simulated disk. Workers lease tasks, crash, hang, report late, twice,
and contradict themselves. The answers are checked as they come, and the jobs are inspected from inside.
"""

from __future__ import annotations

from collections.abc import Callable

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.storage.journal import JournalConfig
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import InvalidValue
from lavant.simulation.kernel import (
    MS,
    Exponential,
    FaultOptions,
    Host,
    LinkConfig,
    LogUniform,
    Machine,
    Scenario,
    WorkRequested,
    World,
    schedule_faults,
    swarmed_disk,
    swarmed_links,
)
from lavant.simulation.queues.client import ClientMachine
from lavant.simulation.queues.ledger import JournalLedger
from lavant.simulation.queues.server import MakeServer, ServerMachine, boot
from lavant.simulation.workflows.audit import all_jobs, whats_left, whats_wrong
from lavant.simulation.workflows.watch import Watch
from lavant.simulation.workflows.workload import DRAIN, JobWorkload, SimulatedWorker, Submitter

SERVER = "server"
SEGMENT_BYTES = (8 << 10, 16 << 10, 64 << 10)
CLIENTS_MAX = 100
RESTART_US = LogUniform(10 * MS, 2_000 * MS)
"""Short, so that most of the time something can happen."""
AUDIT_US = 500 * MS


class WorkflowOptions(FaultOptions, frozen=True, kw_only=True):
    power_losses_per_min: float = 6.0
    kills_per_min: float = 6.0
    disk_errors_per_min: float = 1.0
    full_disks_per_min: float = 2.0
    submitters: int = 2
    workers: int = 3
    submit_gap_ms: float = 500.0
    """Mean time between two actions of a submitter."""
    work_gap_ms: float = 60.0
    """Between two leases of a worker."""
    compactions_per_min: float = 4.0
    """In addition to those that the journal wants."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("submitters", "workers"):
            if not 1 <= getattr(self, name) <= CLIENTS_MAX:
                raise InvalidValue(f"{name} must lie in 1 to {CLIENTS_MAX}, got {getattr(self, name)}")
        if self.submit_gap_ms <= 0 or self.work_gap_ms <= 0 or self.compactions_per_min < 0:
            raise InvalidValue(
                "submit_gap_ms and work_gap_ms must be above 0 and compactions_per_min not below, got "
                f"{self.submit_gap_ms}, {self.work_gap_ms} and {self.compactions_per_min}"
            )


def build(world: World, options: WorkflowOptions, make_server: MakeServer | None = None) -> None:
    """The world of this scenario; tests insert a faulty server."""
    world.links(swarmed_links(options, world.random("links")))
    watch = Watch(world)
    server = _add_server(world, options, make_server)
    clients = [
        _add_client(world, f"{kind.__name__.lower()}-{number}", kind, gap_ms, watch)
        for kind, count, gap_ms in (
            (Submitter, options.submitters, options.submit_gap_ms),
            (SimulatedWorker, options.workers, options.work_gap_ms),
        )
        for number in range(1, count + 1)
    ]
    world.at_calm(lambda: _drain(world, clients))
    world.invariant("tasks and their messages agree", lambda: _audit(server, whats_wrong), every_us=AUDIT_US)
    world.at_end("all jobs come to rest", lambda: _audit(server, whats_left))
    world.at_end("no job is lost, and none has another end", lambda: _audit(server, lambda jobs: _lost(jobs, watch)))
    schedule_faults(world, options, [*[server] * len(clients), *clients])  # the server is hit by half of them


def _add_server(world: World, options: WorkflowOptions, make_server: MakeServer | None) -> Host:
    segment_bytes = world.random("journal").choice(SEGMENT_BYTES)
    config = JournalConfig(segment_bytes=segment_bytes, block_bytes_max=4096, compaction_bytes_min=2 * segment_bytes)
    ledger = JournalLedger(world)

    def make(broker: BrokerState, position: int) -> BrokerMachine:
        return BrokerMachine(broker, position=position)

    def start(host: Host) -> Machine:
        return boot(host, config, ledger, make if make_server is None else make_server)

    server = world.host(SERVER, start, disk=swarmed_disk(options, world.random("disk")), restart_us=RESTART_US)
    if options.compactions_per_min:
        gap_us = Exponential(int(60_000 * MS / options.compactions_per_min))
        world.arrivals("compactions", gap_us, lambda random: server.stimulate(WorkRequested("compact")))
    return server


def _add_client(world: World, name: str, kind: type[JobWorkload], gap_ms: float, watch: Watch) -> Host:
    def start(host: Host) -> Machine:
        name = f"{host.name}/{host.incarnation}"
        return ClientMachine(SERVER, host.incarnation, kind(name, world.random(f"{name}/work")), world.random(name))

    host = world.host(name, start, note=watch.note)
    world.arrivals(host.name, Exponential(int(gap_ms * MS)), lambda random: host.stimulate(WorkRequested("work")))
    return host


def _drain(world: World, clients: list[Host]) -> None:
    """During the calm, nothing keeps workers from doing what is left."""
    for client in clients:
        world.network.configure(SERVER, client.name, LinkConfig())
        client.stimulate(WorkRequested(DRAIN))


def _audit(server: Host, look: Callable[[Jobs], str | None]) -> str | None:
    machine = server.machine
    return look(machine.server.queues) if isinstance(machine, ServerMachine) else None


def _lost(jobs: Jobs, watch: Watch) -> str | None:
    there = {job.number: job for job in all_jobs(jobs)}
    for name, number in watch.jobs.items():
        if number not in there or there[number].name != name:
            return f"job {number} was submitted as {name!r}, but it is {there.get(number)}"
    for number, state in watch.ends.items():
        if there[number].state != state:
            return f"a client heard that job {number} is {state}, but it is {there[number].state}"
    return None


SCENARIO = Scenario(
    name="workflows",
    summary="jobs over bad links, workers that crash and hang, a server that dies; none is lost, none ends twice",
    options=WorkflowOptions,
    build=build,
    minutes=1.0,
)
