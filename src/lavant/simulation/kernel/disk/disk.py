"""A simulated disk: a flat directory of files with latency, limited space, errors, and loss of unsynced data.

It implements the `Disk` protocol of `lavant.broker.storage.journal.disk`, so the real journal runs on it. Called
through the protocol an operation happens at once, and its duration is added up for the host, which is busy for so long
afterwards. A crash can be scheduled in the middle of an operation: `Crash` then propagates through the calling code.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from lavant.core.errors import InvalidValue, StorageFull
from lavant.simulation.kernel.context import SimulationContext
from lavant.simulation.kernel.disk.sectors import SectoredFile, Survival
from lavant.simulation.kernel.distributions import Distribution, Exponential

SLOWED_US_MAX = 1_000_000
"""Slowness makes no operation longer than this."""
_SURVIVALS = tuple(Survival)


class Crash(BaseException):
    """The host crashed in the middle of an operation. Not an `Exception`, so that no code handles it as an error."""

    def __init__(self, *, power: bool) -> None:
        super().__init__()
        self.power = power


class Strike(NamedTuple):
    """A scheduled crash: in which operation, and whether power is lost or only the process dies."""

    operations: int
    power: bool


class DiskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are about those of a solid-state disk in a server."""

    write_us: Distribution = Exponential(15, least_us=10)
    sync_us: Distribution = Exponential(60, least_us=90)
    bytes_per_s: int = 1_000_000_000
    capacity_bytes: int = 1 << 40


class SimulatedDisk:
    """One host's disk."""

    def __init__(self, stage: SimulationContext, name: str, config: DiskConfig) -> None:
        self.name = name
        self.capacity_bytes = config.capacity_bytes
        self.slowness = 1
        """Factor on all durations, within limits."""
        self.error: str | None = None
        """While set, every write and sync fails with it."""
        self._stage = stage
        self._config = config
        self._random = stage.randomness.stream(f"disk/{name}")
        self._files: dict[str, SectoredFile] = {}
        self._removed: dict[str, SectoredFile] = {}
        self._writes = 0
        self._free_us = 0
        self._elapsed_us = 0
        self._strikes: deque[Strike] = deque()
        self._operations = 0

    # ── the journal's protocol ────────────────────────────────────────────────────────────────────────────────────────

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name).content)

    def read(self, name: str, position: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else position + length
        content = bytes(self._file(name).content[position:end])
        self._take(self._transfer_us(len(content)))
        return content

    def create(self, name: str, size: int) -> None:
        """A file of zeros, durable with its name; a power loss may leave it short, or missing."""
        if name in self._files:
            raise FileExistsError(errno.EEXIST, f"disk {self.name} has a file of this name already", name)
        self._require_health()
        self._require_room(name, size)
        self._strike(lambda: self._put(name, bytes(int(size * self._random.random()))))
        self._put(name, bytes(size))
        self._removed.clear()
        self._take(self._config.sync_us.draw_us(self._random) + self._transfer_us(size))
        self._say("creates", f"{name} ({size})")

    def write(self, name: str, position: int, data: bytes) -> None:
        self.begin_write(name, position, data)
        self._take(self._config.write_us.draw_us(self._random) + self._transfer_us(len(data)))
        self._strike()

    def sync(self, name: str) -> None:
        self._file(name)
        self._strike()
        self._take(self._config.sync_us.draw_us(self._random))
        self.settle(name, self._writes)

    def replace(self, name: str, parts: Iterable[bytes]) -> None:
        """Atomic: a power loss leaves the old file or the new one."""
        content = b"".join(parts)
        self._require_health()
        self._require_room(name, len(content))
        self._strike(lambda: self._put(name, content))
        self._put(name, content)
        self._removed.clear()
        self._take(self._config.sync_us.draw_us(self._random) + self._transfer_us(len(content)))
        self._say("replaces", f"{name} ({len(content)})")

    def remove(self, name: str) -> None:
        """Effective at once; but until the directory is synced, as `create` and `replace` do, a power loss may
        undo it.
        """
        self._removed[name] = self._file(name)
        self._strike(lambda: self._files.pop(name))
        del self._files[name]
        self._take(self._config.write_us.draw_us(self._random))
        self._say("removes", name)

    # ── for the host: a write and sync that take their time while the machine continues
    # ───────────────────────────────

    def begin_write(self, name: str, position: int, data: bytes) -> int:
        """Write without waiting; the number returned is for `settle`."""
        file = self._file(name)
        if position < 0 or position + len(data) > len(file.content):
            raise InvalidValue(
                f"a write of {len(data)} bytes at {position} exceeds file {name} of {len(file.content)} bytes; "
                "create it large enough"
            )
        self._require_health()
        self._writes += 1
        file.write(self._writes, position, data)
        self._stage.figures["disk writes"] += 1
        if self._stage.is_traced:
            self._say("writes", f"{name} {position}+{len(data)}")
        return self._writes

    def commit_us(self, size: int) -> int:
        """When a write of this size and its sync, begun now, will be done; the disk does one thing at a time."""
        write_us, sync_us = self._config.write_us, self._config.sync_us
        return self._reserve(
            write_us.draw_us(self._random) + self._transfer_us(size) + sync_us.draw_us(self._random), self._stage.now_us
        )

    def settle(self, name: str, number: int) -> None:
        """Sync: writes to this file up to that number are durable."""
        self._require_health()
        if name in self._files:  # it may have been removed since it was written
            self._files[name].settle(number)
        self._stage.figures["disk syncs"] += 1
        self._say("synced", name)

    def take_elapsed_us(self) -> int:
        """Duration of the operations since the last call."""
        elapsed_us, self._elapsed_us = self._elapsed_us, 0
        return elapsed_us

    # ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def lose_power(self) -> None:
        """Revert to the durable state: for each file its synced contents, and any part of the rest."""
        self._elapsed_us = 0
        self._free_us = 0
        for name, file in self._removed.items():
            if name not in self._files and self._random.random() < 0.5:
                self._files[name] = file
                self._say("brings back", name)
        self._removed.clear()
        survival = self._random.choice(_SURVIVALS)
        for name in self.names():
            file = self._files[name]
            unsynced = file.sectors_unsynced
            if unsynced:
                lost = file.lose_power(survival, self._random)
                self._stage.figures["sectors lost"] += lost
                self._say("lost", f"{lost} of {unsynced} unsynced sectors of {name} ({survival.value} survives)")

    def strike_in(self, operations: int, *, power: bool) -> None:
        """Crash the host in the n-th operation from now (1 is the next), or after the last scheduled crash."""
        assert operations > 0, "the past cannot be struck"
        self._strikes.append(Strike(operations, power))

    def struck(self) -> Strike | None:
        """Count an operation; return its scheduled crash, if any."""
        if not self._strikes:
            return None
        self._operations += 1
        if self._operations < self._strikes[0].operations:
            return None
        self._operations = 0
        return self._strikes.popleft()

    def fill(self) -> None:
        """No space from now on, until `make_room`."""
        self.capacity_bytes = self.used_bytes

    def make_room(self) -> None:
        self.capacity_bytes = self._config.capacity_bytes

    def speed_up(self) -> None:
        self.slowness = 1

    def repair(self) -> None:
        self.error = None

    def heal(self) -> None:
        """End all faults of the disk; lost or damaged data stays so."""
        self._strikes.clear()
        self._operations = 0
        self._free_us = 0
        self.speed_up()
        self.repair()
        self.make_room()

    def flip_bit(self, name: str, position: int, bit: int) -> None:
        """Damage that no power loss explains."""
        self._file(name).content[position] ^= 1 << bit
        self._say("flips", f"bit {bit} of byte {position} of {name}")

    # ── for checks: take no time
    # ──────────────────────────────────────────────────────────────────────────────────────

    def content(self, name: str) -> bytes:
        """The contents as a program would read them."""
        return bytes(self._file(name).content)

    def durable(self, name: str) -> bytes:
        """The contents after a power loss, at worst."""
        return self._file(name).durable()

    @property
    def used_bytes(self) -> int:
        return sum(len(file.content) for file in self._files.values())

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _file(self, name: str) -> SectoredFile:
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, f"disk {self.name} has no such file", name)
        return file

    def _put(self, name: str, content: bytes) -> None:
        file = SectoredFile(0)
        file.content[:] = content
        self._files[name] = file

    def _require_room(self, name: str, size: int) -> None:
        # A replaced file's old contents stay until the new ones are complete, so both need space.
        free = self.capacity_bytes - self.used_bytes
        if size > free:
            raise StorageFull(f"disk {self.name} has {free} bytes left, {name} needs {size}; make room")

    def _require_health(self) -> None:
        if self.error is not None:
            raise OSError(errno.EIO, f"disk {self.name}: {self.error}")

    def _transfer_us(self, size: int) -> int:
        return size * 1_000_000 // self._config.bytes_per_s

    def _take(self, duration_us: int) -> None:
        now_us = self._stage.now_us
        self._elapsed_us = self._reserve(duration_us, now_us + self._elapsed_us) - now_us

    def _reserve(self, duration_us: int, from_us: int) -> int:
        """Make the disk busy for so long, as soon as it is free; returns until when."""
        slowed_us = max(duration_us, min(duration_us * self.slowness, SLOWED_US_MAX))
        self._free_us = max(from_us, self._free_us) + slowed_us
        return self._free_us

    def _strike(self, half_done: Callable[[], object] | None = None) -> None:
        """Crash if it is time to; `half_done` is what may have happened of the operation."""
        strike = self.struck()
        if strike is not None:
            if half_done is not None and self._random.random() < 0.5:
                half_done()
            raise Crash(power=strike.power)

    def _say(self, kind: str, text: str) -> None:
        if self._stage.is_traced:
            self._stage.say(f"{self.name} disk {kind} {text}")
