"""`leases`: clients with temporary subscriptions and their server are killed; nothing ends early, nothing is left over.

The server is the real one. A client that hears that its subscription has ended must have been silent for the length of
its lease. During the calm, exactly the subscriptions of the running clients and their queues exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import RenewSubscription, Subscribe, Subscribed
from lavant.broker.storage.journal import JournalConfig
from lavant.core.errors import InvalidValue, UnknownSubscription
from lavant.simulation.kernel import (
    MS,
    FaultOptions,
    Host,
    LogUniform,
    Machine,
    Scenario,
    World,
    schedule_faults,
    swarmed_disk,
    swarmed_links,
)
from lavant.simulation.kernel.faults.kinds import DRIFTS_PPM
from lavant.simulation.queues.client import ClientMachine
from lavant.simulation.queues.ledger import JournalLedger
from lavant.simulation.queues.server import MakeServer, ServerMachine, boot

RENEWALS_PER_LEASE = 3


class Subscriber:
    """One start of one client; implements `ClientWork`.

    `now_us` is the world's time; `on_ended` gets the time since the last request that renewed a lease which the server
    says has ended.
    """

    def __init__(
        self, name: str, lease_ms: int, *, now_us: Callable[[], int], on_ended: Callable[[str, int], None]
    ) -> None:
        self.name = name
        self._request = Subscribe("price > 1", name, lease_ms=lease_ms)
        self._period_ms = lease_ms // RENEWALS_PER_LEASE
        self._now_us = now_us
        self._on_ended = on_ended
        self._is_subscribed = False
        self._asked_us = 0
        self._renewed_us = 0
        self._next_ms = 0

    def wishes(self, under_way: int, now_ms: int) -> Iterator[Request]:
        if under_way or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._period_ms
        self._asked_us = self._now_us()
        yield RenewSubscription(self.name) if self._is_subscribed else self._request

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        if isinstance(answer, Subscribed):
            self._is_subscribed = True
            self._renewed_us = self._asked_us
        elif isinstance(answer, Refused) and answer.code == UnknownSubscription.__name__:
            self._is_subscribed = False
            self._next_ms = now_ms
            self._on_ended(self.name, self._now_us() - self._renewed_us)
        else:  # unknown, or the disk is full
            self._next_ms = min(self._next_ms, now_ms + self._period_ms // 2)

    def asked(self, value: object, now_ms: int) -> None:
        pass

    def connected(self) -> None:
        self._next_ms = 0

    def wakeup_ms(self) -> int | None:
        return self._next_ms


SERVER = "server"
SEGMENT_BYTES = 8 << 10
CLIENTS_MAX = 100
LEASE_MS = 6_000
RESTART_US = LogUniform(10 * MS, 20_000 * MS)
"""Some return within their lease, others do not."""
EARLY = "no subscription ends before its lease"
LEFT = "the subscriptions are those of the clients that are there"


class LeaseOptions(FaultOptions, frozen=True, kw_only=True):
    power_losses_per_min: float = 4.0
    kills_per_min: float = 12.0
    full_disks_per_min: float = 4.0
    clock_jumps_per_min: float = 0.0
    """A step of the server's clock counts up to its bound, so with these a lease may end early by that much."""
    clients: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.clients <= CLIENTS_MAX:
            raise InvalidValue(f"clients must lie in 1 to {CLIENTS_MAX}, got {self.clients}")


def build(world: World, options: LeaseOptions, make_server: MakeServer | None = None) -> None:
    """The world of this scenario; tests insert a faulty server."""
    world.links(swarmed_links(options, world.random("links")))
    ledger = JournalLedger(world)
    config = JournalConfig(segment_bytes=SEGMENT_BYTES, block_bytes_max=4096, compaction_bytes_min=2 * SEGMENT_BYTES)
    make: MakeServer = _server if make_server is None else make_server
    server = world.host(
        SERVER,
        lambda host: boot(host, config, ledger, make),
        disk=swarmed_disk(options, world.random("disk")),
        restart_us=RESTART_US,
    )
    clients = [_add_client(world, number) for number in range(1, options.clients + 1)]
    world.at_end(LEFT, lambda: _check_left(server, clients))
    schedule_faults(world, options, [*[server] * (len(clients) // 2), *clients])


def _server(broker: BrokerState, position: int) -> BrokerMachine:
    return BrokerMachine(broker, position=position)


def _add_client(world: World, number: int) -> Host:
    def ended(name: str, silent_us: int) -> None:
        world.count("subscriptions that had ended")
        if silent_us * 1_000_000 < LEASE_MS * MS * (1_000_000 - max(DRIFTS_PPM)):
            world.violated(EARLY, f"{name} had ended {silent_us // MS} ms after its lease of {LEASE_MS} ms was renewed")

    def start(host: Host) -> Machine:
        name = _name_of(host)
        work = Subscriber(name, LEASE_MS, now_us=lambda: world.now_us, on_ended=ended)
        return ClientMachine(SERVER, host.incarnation, work, world.random(name))

    return world.host(f"client-{number}", start, restart_us=RESTART_US)


def _name_of(host: Host) -> str:
    """Each start of a client has a subscription of its own."""
    return f"{host.name}-{host.incarnation}"


def _check_left(server: Host, clients: list[Host]) -> str | None:
    machine = server.machine
    assert isinstance(machine, ServerMachine), "the server is up when all is over"
    broker = machine.server.broker
    there = sorted(each.name for each in broker.subscriptions)
    wanted = sorted(map(_name_of, clients))
    queues = sorted(each.name for each in broker.queues.all())
    return None if there == queues == wanted else f"there are {there} with queues {queues}, and not {wanted}"


SCENARIO = Scenario(
    name="leases",
    summary="clients with temporary subscriptions are killed, and so is the server; nothing ends early or is left",
    options=LeaseOptions,
    build=build,
    minutes=2.0,
)
