"""The kinds of faults: each strikes something at random, and says what it struck and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from lavant.simulation.kernel.distributions import LogUniform
from lavant.simulation.kernel.host import Host
from lavant.simulation.kernel.world import World

OPERATIONS_AHEAD_MAX = 30
CRASHES_MAX = 5
SLOWNESS = (10, 100, 1000)
DRIFTS_PPM = (-50_000, -200, 200, 50_000)
PAUSE_US = LogUniform(1_000, 10_000_000)
JUMP_US = LogUniform(1_000, 864_000_000_000)
"""Up to ten days, which is longer than queues keep messages."""


class Struck(NamedTuple):
    """What was struck, and how to end it; None if there is nothing to end."""

    what: str
    end: Callable[[], object] | None = None


Strike: TypeAlias = Callable[[World, Sequence[Host], Random], Struck]


def power_loss(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    return _crash(random.choice(hosts), random, power=True)


def kill(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    """The process dies; its writes are not lost, but not durable either."""
    return _crash(random.choice(hosts), random, power=False)


def _crash(host: Host, random: Random, *, power: bool) -> Struck:
    """Now, or in the middle of a disk operation, and perhaps again soon after the restart: most failures happen while
    something is being written or recovered.
    """
    is_now = random.random() < 0.5
    operations = [] if is_now else [(_operations(random), power)]
    while random.random() < 0.5 and len(operations) < CRASHES_MAX:
        operations.append((_operations(random), random.random() < 0.5))
    for count, is_power in operations:
        host.disk.strike_in(count, power=is_power)
    if is_now and host.is_up:
        host.crash(power=power)
    later = ", ".join(f"{'power' if is_power else 'process'} in {count}" for count, is_power in operations)
    return Struck(f"{host.name}{' now' if is_now else ''}{'; operations: ' + later if later else ''}")


def _operations(random: Random) -> int:
    return LogUniform(1, OPERATIONS_AHEAD_MAX).draw_us(random)


def pause(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    host = random.choice(hosts)
    host.pause(PAUSE_US.draw_us(random))
    return Struck(host.name)


def partition(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    """Split all hosts into two groups, or one host from the others, or cut one direction between two."""
    names = list(world.hosts)
    random.shuffle(names)
    if len(names) < 2:
        return Struck("nothing, for there is one host only")
    way = random.randrange(3)
    if way == 0:
        one, other = names[:2]
        return Struck(f"{one} to {other}, one way", world.network.cut([(one, other)]))
    size = 1 if way == 1 else random.randrange(1, len(names))
    return Struck(
        f"{' '.join(names[:size])} from {' '.join(names[size:])}", world.network.partition(names[:size], names[size:])
    )


def storm(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    """All links lose many packets, or are slow."""
    network = world.network

    def end() -> None:
        network.loss_extra, network.slowness = 0.0, 1

    if random.random() < 0.5:
        network.loss_extra = 0.1 + 0.8 * random.random()
        return Struck(f"links lose {network.loss_extra:.2f} more", end)
    network.slowness = random.choice(SLOWNESS)
    return Struck(f"links are {network.slowness} times as slow", end)


def slow_disk(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    disk = random.choice(hosts).disk
    disk.slowness = random.choice(SLOWNESS)
    return Struck(f"{disk.name}, {disk.slowness} times", disk.speed_up)


def full_disk(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    disk = random.choice(hosts).disk
    disk.fill()
    return Struck(f"{disk.name} at {disk.used_bytes} bytes", disk.make_room)


def disk_error(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    disk = random.choice(hosts).disk
    disk.error = "input/output error"
    return Struck(disk.name, disk.repair)


def flipped_bit(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    disk = random.choice(hosts).disk
    files = [name for name in disk.names() if disk.size(name)]
    if not files:
        return Struck(f"nothing on {disk.name}, which is empty")
    name = random.choice(files)
    position = random.randrange(disk.size(name))
    disk.flip_bit(name, position, random.randrange(8))
    return Struck(f"{disk.name}, byte {position} of {name}")


def clock_jump(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    host = random.choice(hosts)
    by_ms = JUMP_US.draw_us(random) // 1000 * random.choice((-1, 1))
    host.clock.jump(by_ms, now_us=world.now_us)
    return Struck(f"{host.name} by {by_ms} ms")


def clock_drift(world: World, hosts: Sequence[Host], random: Random) -> Struck:
    host = random.choice(hosts)
    host.clock.drift(random.choice(DRIFTS_PPM), now_us=world.now_us)
    return Struck(f"{host.name} by {host.clock.drift_ppm} ppm", lambda: host.clock.drift(0, now_us=world.now_us))


KINDS: Sequence[tuple[str, Strike]] = (
    ("power_losses", power_loss),
    ("kills", kill),
    ("pauses", pause),
    ("partitions", partition),
    ("storms", storm),
    ("slow_disks", slow_disk),
    ("full_disks", full_disk),
    ("disk_errors", disk_error),
    ("flipped_bits", flipped_bit),
    ("clock_jumps", clock_jump),
    ("clock_drifts", clock_drift),
)
"""By their names in `FaultOptions`, which has a rate for each."""
