"""`queues`: clients send, receive and acknowledge over bad links, and the server crashes; nothing confirmed is lost.

The server is the real one: queues, server and journal as the service runs them, on a simulated disk. The answers to
clients are checked at the end, and each recovery when it happens.
"""

from __future__ import annotations

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queues import Peek, Peeked, PeekedMessage
from lavant.broker.storage.journal import JournalConfig
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
from lavant.simulation.kernel.faults.kinds import DRIFTS_PPM
from lavant.simulation.queues.client import ClientMachine, Recorder
from lavant.simulation.queues.ledger import JournalLedger
from lavant.simulation.queues.server import MakeServer, ServerMachine, boot
from lavant.simulation.queues.workload import CONFIGS, DRAIN, QueueWorkload

SERVER = "server"
SEGMENT_BYTES = (8 << 10, 16 << 10, 64 << 10)
CLIENTS_MAX = 100
RESTART_US = LogUniform(10 * MS, 2_000 * MS)
"""Short, so that most of the time something can happen."""


class QueueOptions(FaultOptions, frozen=True, kw_only=True):
    power_losses_per_min: float = 6.0
    kills_per_min: float = 6.0
    disk_errors_per_min: float = 1.0
    full_disks_per_min: float = 4.0
    clients: int = 4
    gap_ms: float = 150.0
    """Mean time between two actions of a client."""
    compactions_per_min: float = 4.0
    """In addition to those that the journal wants."""
    acknowledge_early: bool = False
    """Answer acknowledgements before they are durable: a crash can then bring back acknowledged messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.clients <= CLIENTS_MAX:
            raise InvalidValue(f"clients must lie in 1 to {CLIENTS_MAX}, got {self.clients}")
        if self.gap_ms <= 0 or self.compactions_per_min < 0:
            raise InvalidValue(
                f"gap_ms must be above 0 and compactions_per_min not below, got {self.gap_ms} and "
                f"{self.compactions_per_min}"
            )


def build(world: World, options: QueueOptions, make_server: MakeServer | None = None) -> None:
    """The world of this scenario; tests insert a faulty server."""
    world.links(swarmed_links(options, world.random("links")))
    recorder = Recorder(world, CONFIGS)
    ledger = JournalLedger(world)
    server = _add_server(world, options, recorder, ledger, make_server)
    clients = [_add_client(world, number, options, recorder) for number in range(1, options.clients + 1)]
    world.at_calm(lambda: _drain(world, clients))
    world.at_end("clients were told the truth", lambda: _check_history(world, recorder, ledger, server))
    world.at_end("every message is received in the end", lambda: _check_drained(server))
    schedule_faults(world, options, [*[server] * len(clients), *clients])  # the server is hit by half of them


def _add_server(
    world: World, options: QueueOptions, recorder: Recorder, ledger: JournalLedger, make_server: MakeServer | None
) -> Host:
    random = world.random("journal")
    segment_bytes = random.choice(SEGMENT_BYTES)
    config = JournalConfig(segment_bytes=segment_bytes, block_bytes_max=4096, compaction_bytes_min=2 * segment_bytes)

    def make(broker: BrokerState, position: int) -> BrokerMachine:
        return BrokerMachine(broker, position=position, acknowledge_early=options.acknowledge_early)

    def start(host: Host) -> Machine:
        recorder.restarted()
        return boot(host, config, ledger, make if make_server is None else make_server)

    server = world.host(SERVER, start, disk=swarmed_disk(options, world.random("disk")), restart_us=RESTART_US)
    if options.compactions_per_min:
        gap_us = Exponential(int(60_000 * MS / options.compactions_per_min))
        world.arrivals("compactions", gap_us, lambda random: server.stimulate(WorkRequested("compact")))
    return server


def _add_client(world: World, number: int, options: QueueOptions, recorder: Recorder) -> Host:
    def start(host: Host) -> Machine:
        name = f"{host.name}/{host.incarnation}"
        return ClientMachine(
            SERVER, host.incarnation, QueueWorkload(name, world.random(f"{name}/work")), world.random(name)
        )

    host = world.host(f"client-{number}", start, note=recorder.note)
    world.arrivals(
        host.name, Exponential(int(options.gap_ms * MS)), lambda random: host.stimulate(WorkRequested("work"))
    )
    return host


def _drain(world: World, clients: list[Host]) -> None:
    """During the calm, nothing keeps clients from receiving everything."""
    for client in clients:
        world.network.configure(SERVER, client.name, LinkConfig())
        client.stimulate(WorkRequested(DRAIN))


def _check_history(world: World, recorder: Recorder, ledger: JournalLedger, server: Host) -> None:
    left = {message.number: queue for queue, message in _left(server)}
    violations = recorder.violations(left, clock_ppm=max(DRIFTS_PPM), clock_jumps_ms=ledger.excess_ms)
    if violations:
        first, *others = violations
        world.violated(first.rule, first.what + (f" (and {len(others)} more)" if others else ""))


def _check_drained(server: Host) -> str | None:
    for queue, message in _left(server):
        return (
            f"message {message.number} is still in {queue!r}, {message.state}, received {message.receive_count} times"
        )
    return None


def _left(server: Host) -> list[tuple[str, PeekedMessage]]:
    """Messages that are in the queues now."""
    machine = server.machine
    assert isinstance(machine, ServerMachine), "the server is up when all is over"
    found: list[tuple[str, PeekedMessage]] = []
    for queue in CONFIGS:
        peeked = machine.server.queues.handle(Peek(queue, 1000), 0)
        assert isinstance(peeked, Peeked)
        found += [(queue, message) for message in peeked.messages]
    return found


SCENARIO = Scenario(
    name="queues",
    summary="clients send, receive and acknowledge over bad links; nothing confirmed is lost, a lease has one holder",
    options=QueueOptions,
    build=build,
    minutes=1.0,
)
