"""`slices`: slices move between hosts that crash, over lossy links; each publication reaches each subscriber once.

Hosts, manager, sources and sink are the machines of `lavant.broker.slices`. Hosts and manager record their inputs in
the real journal. Crashes strike at any time, and preferably at each step of a migration: the slice's old host, its new
one, or the manager. Sources and the sink stand for the outside world, and do not crash.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from lavant.broker.filters import Filter
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.slices.endpoints import Offer, SliceSource
from lavant.broker.slices.layout import SINK, SliceLayout
from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.manager import ManagerConfig, MigrationManager, Relocate, Relocated
from lavant.broker.slices.migration.migration import MigrationConfig
from lavant.broker.slices.values import SlicePublish, SliceSubscribe, SliceUnsubscribe
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.errors import InvalidValue
from lavant.core.ids import HostId, SliceId
from lavant.core.publications.batch import PublicationBatch
from lavant.simulation.kernel import (
    MS,
    Exponential,
    FaultOptions,
    Host,
    LinkConfig,
    LogUniform,
    Scenario,
    WorkRequested,
    World,
    schedule_faults,
    swarmed_disk,
    swarmed_links,
)
from lavant.simulation.kernel.distributions import require_probability
from lavant.simulation.kernel.faults.swarm import swarmed
from lavant.simulation.slices.machines import HostMachine, ManagerMachine, SinkMachine, SourceMachine
from lavant.simulation.slices.oracle import Oracle

VALUES = 5
IDS = 12
"""Subscriptions of one source in one scheme; few, so that ids are reused."""
BATCH_MAX = 3
TEMPLATES = ("x = {0}", "x >= {0}", "x = {0} and y < {1}", "x >= {0} and y >= {1}")


def make_key(random: Random) -> Key:
    """A key from the seed: only for simulations."""
    schema = Schema.of(NumericAttribute("x", 0, VALUES, 1), NumericAttribute("y", 0, VALUES, 1))
    return Key.generate(schema, entropy=random.randbytes)


class Clients:
    """All clients of one source. The oracle sees what they do."""

    def __init__(self, source: int, sources: int, oracle: Oracle, key: Key) -> None:
        self._source = source
        self._sources = sources
        self._oracle = oracle
        self._key = key

    def act(self, random: Random) -> SliceSubscribe | SliceUnsubscribe | SlicePublish:
        """The next action."""
        scheme = random.choice(("plain", "encrypted"))
        chance = random.random()
        if chance < 0.6:
            return self._publish(scheme, random)
        ids = random.sample(range(IDS), random.randint(1, 3))
        own = [id * self._sources + self._source for id in ids]
        return self._subscribe(scheme, own, random) if chance < 0.88 else self._unsubscribe(scheme, own)

    def _publish(self, scheme: str, random: Random) -> SlicePublish:
        rows = [
            {"x": random.randrange(VALUES), "y": random.randrange(VALUES)} for _ in range(random.randint(1, BATCH_MAX))
        ]
        self._oracle.published(self._source, scheme, rows)
        batch: Any = PublicationBatch.from_dicts(rows) if scheme == "plain" else self._key.encrypt_publications(rows)
        return SlicePublish(scheme, batch)

    def _subscribe(self, scheme: str, ids: list[int], random: Random) -> SliceSubscribe:
        texts = {
            id: random.choice(TEMPLATES).format(random.randrange(VALUES), random.randrange(1, VALUES)) for id in ids
        }
        self._oracle.subscribed(self._source, scheme, texts)
        parsed = list(map(Filter.parse, texts.values()))
        filters: Any = encode_filters(parsed) if scheme == "plain" else self._key.encrypt_filters(parsed)
        return SliceSubscribe(scheme, np.array(ids, np.uint32), filters)

    def _unsubscribe(self, scheme: str, ids: list[int]) -> SliceUnsubscribe:
        self._oracle.unsubscribed(self._source, scheme, ids)
        return SliceUnsubscribe(scheme, np.array(ids, np.uint32))


MANAGER, SINK_HOST = HostId("manager"), HostId("sink")
HOSTS_MAX = 30
RESTART_US = LogUniform(10 * MS, 3_000 * MS)
STRIKE_US = LogUniform(1, 100 * MS)
"""Time between the beginning of a step and a crash."""
DEADLINES_MS = (300, 2_000, 10_000)
MOVES_WAITING_MAX = 3
"""With more, slices would still be moving at the end."""


class SliceOptions(FaultOptions, frozen=True, kw_only=True):
    power_losses_per_min: float = 4.0
    kills_per_min: float = 4.0
    full_disks_per_min: float = 0.0
    """Hosts here cannot handle a full disk; the `queues` scenario tests that."""
    hosts: int = 3
    access: int = 2
    match: int = 3
    exit: int = 2
    gap_ms: float = 120.0
    """Mean time between two actions of the clients of a source."""
    moves_per_min: float = 40.0
    strikes: float = 0.15
    """The probability that a participant crashes at a step of a migration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_probability("strikes", self.strikes)
        if not 1 <= self.hosts <= HOSTS_MAX:
            raise InvalidValue(f"hosts must lie in 1 to {HOSTS_MAX}, got {self.hosts}")
        if self.gap_ms <= 0 or self.moves_per_min < 0:
            raise InvalidValue(
                f"gap_ms must be above 0 and moves_per_min not below, got {self.gap_ms} and {self.moves_per_min}"
            )


def build(world: World, options: SliceOptions) -> None:
    """The world of this scenario."""
    world.links(swarmed_links(options, world.random("links")))
    layout = SliceLayout(access=options.access, match=options.match, exit=options.exit)
    names = [HostId(f"host-{number}") for number in range(1, options.hosts + 1)]
    placement = {slice: names[number % len(names)] for number, slice in enumerate(layout.slices)}
    placement |= {SINK: SINK_HOST}
    hosts = [_add_host(world, options, name, layout, placement) for name in names]
    manager = _add_manager(world, options, layout, placement, hosts)
    oracle = Oracle(world, options.access)
    world.host(SINK_HOST, lambda host: SinkMachine(), note=lambda host, value: oracle.notified(value.notification))
    key = make_key(world.random("key"))
    for number, access in enumerate(layout.access_slices):
        clients = Clients(number, options.access, oracle, key)
        _add_source(world, options, number, access, placement, clients)
    world.at_calm(lambda: _mend_links(world))
    world.invariant("one instance of a slice runs", lambda: _running_twice(hosts), every_us=50 * MS)
    world.at_end("every batch is notified in the end", oracle.outstanding)
    world.at_end("every migration comes to an end", lambda: _unfinished(manager))
    world.at_end("every slice runs where the manager says", lambda: _misplaced(manager, hosts, layout))
    schedule_faults(world, options, [*hosts, manager])


def _add_host(
    world: World, options: SliceOptions, name: HostId, layout: SliceLayout, placement: dict[SliceId, HostId]
) -> Host:
    def boot(host: Host) -> HostMachine:
        return HostMachine(SliceHost(name, layout, MANAGER, placement), host.disk)

    def note(host: Host, refused: Any) -> None:
        world.violated("nothing is refused", f"{host.name} refused {refused}")

    disk = swarmed_disk(options, world.random(f"disk/{name}"))
    return world.host(name, boot, disk=disk, restart_us=RESTART_US, note=note)


def _add_manager(
    world: World, options: SliceOptions, layout: SliceLayout, placement: dict[SliceId, HostId], hosts: list[Host]
) -> Host:
    random = world.random("manager")
    migration = MigrationConfig(deadline_ms=random.choice(DEADLINES_MS), copy_retry_ms=1_000)
    config = ManagerConfig(migration=migration, at_once_max=random.choice((1, 3)))
    edges = [HostId(f"source-{number}") for number in range(options.access)]
    placed = {slice: placement[slice] for slice in layout.slices}

    def boot(host: Host) -> ManagerMachine:
        return ManagerMachine(MigrationManager(placed, edges, config), host.disk)

    def move(random: Random) -> None:
        if isinstance(manager.machine, ManagerMachine) and len(manager.machine.manager.waiting) < MOVES_WAITING_MAX:
            manager.stimulate(WorkRequested(Relocate(random.choice(layout.slices), HostId(random.choice(hosts).name))))

    strikes = _Strikes(world, options, hosts)
    manager = world.host(MANAGER, boot, restart_us=RESTART_US, note=strikes.note)
    if options.moves_per_min:
        world.arrivals("moves", Exponential(int(60_000 * MS / options.moves_per_min)), move)
    return manager


def _add_source(
    world: World,
    options: SliceOptions,
    number: int,
    access: SliceId,
    placement: dict[SliceId, HostId],
    clients: Clients,
) -> None:
    source = SliceSource(SliceId(f"source:{number}"), MANAGER, placement)
    host = world.host(f"source-{number}", lambda host: SourceMachine(source))

    def act(random: Random) -> None:
        if source.room:
            host.stimulate(WorkRequested(Offer(access, clients.act(random))))

    world.arrivals(host.name, Exponential(int(options.gap_ms * MS)), act)


class _Strikes:
    """Crashes the participants of a migration, at any of its steps."""

    def __init__(self, world: World, options: SliceOptions, hosts: list[Host]) -> None:
        self._world = world
        self._hosts = {host.name: host for host in hosts}
        self._random = world.random("strikes")
        self._chance = swarmed(options.strikes, self._random) if options.swarm else options.strikes

    def note(self, manager: Host, value: Any) -> None:
        if isinstance(value, Relocated):
            self._world.count("slices moved" if value.is_moved else "migrations abandoned")
        elif isinstance(value, tuple):
            self._strike(manager, *value)

    def _strike(self, manager: Host, step: str, source: str, destination: str) -> None:
        random, world = self._random, self._world
        if random.random() >= self._chance or world.now_us >= world.calm_us:
            return
        role = random.choice(("source", "destination", "manager"))
        host = {"source": self._hosts[source], "destination": self._hosts[destination], "manager": manager}[role]
        world.count(f"struck {role} while {step}")
        world.after(STRIKE_US.draw_us(random), self._crash, host, random.random() < 0.5)

    def _crash(self, host: Host, power: bool) -> None:
        if host.is_up and self._world.now_us < self._world.calm_us:
            host.crash(power=power)


def _mend_links(world: World) -> None:
    """Make links reliable, so that everything can finish."""
    names = list(world.hosts)
    for number, one in enumerate(names):
        for other in names[: number + 1]:
            world.network.configure(one, other, LinkConfig())


def _running_twice(hosts: list[Host]) -> str | None:
    running: dict[SliceId, str] = {}
    for host in hosts:
        if isinstance(host.machine, HostMachine):
            for slice, hosted in host.machine.host.slices.items():
                if hosted.is_running and running.setdefault(slice, host.name) != host.name:
                    return f"{slice} runs on {running[slice]} and on {host.name}"
    return None


def _unfinished(manager: Host) -> str | None:
    assert isinstance(manager.machine, ManagerMachine), "it is up when all is over"
    for slice, migration in manager.machine.manager.migrations.items():
        return f"{slice} is still {migration.step.value}, long after all faults have ended"
    return None


def _misplaced(manager: Host, hosts: list[Host], layout: SliceLayout) -> str | None:
    assert isinstance(manager.machine, ManagerMachine), "it is up when all is over"
    running = {
        (slice, host.name)
        for host in hosts
        if isinstance(host.machine, HostMachine)
        for slice in host.machine.host.slices
    }
    wanted = {(slice, manager.machine.manager.placement[slice]) for slice in layout.slices}
    return None if running == wanted else f"there are {sorted(running - wanted)} and not {sorted(wanted - running)}"


SCENARIO = Scenario(
    name="slices",
    summary="slices move between hosts that crash; each publication reaches each matching subscriber exactly once",
    options=SliceOptions,
    build=build,
    minutes=1.0,
)
