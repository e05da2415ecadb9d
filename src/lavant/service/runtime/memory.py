"""The memory limit of a server's state: `--memory-max`, or a share of the memory of the container.

    --memory-max ─────────────────────────────────────────────┐
    cgroup, its parents ──┐                                   ├──► limit of the queues
    physical memory ──────┴─ smallest ─ reserve ─ × share ────┘

The state is messages, queues, jobs and subscriptions, as `lavant.broker.queues.accounting.memory` counts them. A server
also needs memory for the process itself, for buffers of connections and of the journal, and, with a data directory, for
the compaction process, which replays the journal and so holds the whole state once more. So the state may fill two
fifths of the memory with a data directory, and three quarters without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from lavant.core.errors import InvalidValue

MEMORY_MIN = 16 << 20
RESERVE_BYTES = 448 << 20
"""For two processes without any state, 230 and 145 MB, and records that wait for the disk."""
SHARE, SHARE_WITHOUT_COMPACTION = 0.40, 0.75
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_UNLIMITED = 1 << 60
"""Version 1 of cgroups reports at least this where there is no limit."""


class MemoryLimit(msgspec.Struct, frozen=True):
    """Bytes and their origin."""

    size_bytes: int
    origin: str
    warning: str = ""
    """Why it may be too much; empty if it is not."""

    def __str__(self) -> str:
        return f"{format_bytes(self.size_bytes)}, {self.origin}"


class Available(msgspec.Struct, frozen=True):
    """Available memory and the source of the figure."""

    size_bytes: int
    origin: str


def parsed_bytes(text: str) -> int:
    """
    >>> parsed_bytes("4G"), parsed_bytes("512m"), parsed_bytes("1.5GiB"), parsed_bytes("20000000")
    (4294967296, 536870912, 1610612736, 20000000)
    """
    number = text.strip().upper()
    for ending in ("IB", "B"):
        number = number.removesuffix(ending)
    unit = number[-1:] if number[-1:] in _UNITS else ""
    try:
        size_bytes = float(number.removesuffix(unit)) * (1 << _UNITS[unit])
    except ValueError:
        size_bytes = -1.0
    if not 0 <= size_bytes < _UNLIMITED:
        raise InvalidValue(f"{text!r} is not a number of bytes; write 512M or 4G, for example")
    return int(size_bytes)


def check_memory_max(size_bytes: int) -> None:
    if size_bytes < MEMORY_MIN:
        raise InvalidValue(
            f"--memory-max must be at least {format_bytes(MEMORY_MIN)}, got {size_bytes} bytes; a queue alone takes "
            "kilobytes"
        )


def memory_limit(given: int | None, *, compacts: bool, root: Path = Path("/")) -> MemoryLimit:
    """The limit of a server that `compacts` in a second process, or does not. `root` holds /proc and /sys."""
    available = available_memory(root)
    share = SHARE if compacts else SHARE_WITHOUT_COMPACTION
    fitting = int(max(0, available.size_bytes - RESERVE_BYTES) * share)
    if given is None:
        total, reserve = format_bytes(available.size_bytes), format_bytes(RESERVE_BYTES)
        origin = f"{share:.0%} of the {total} of {available.origin} less {reserve}"
        if fitting >= MEMORY_MIN:
            return MemoryLimit(fitting, origin)
        return MemoryLimit(MEMORY_MIN, "the minimum", _too_much(available, fitting))
    return MemoryLimit(given, "by --memory-max", _too_much(available, fitting) if given > fitting else "")


def available_memory(root: Path = Path("/")) -> Available:
    """The smallest of the limits of this process' cgroups, those above them, and the machine's memory."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [Available(physical, "the machine"), *_cgroup_limits(root)]
    return min(limits, key=lambda each: each.size_bytes)


def format_bytes(size_bytes: int) -> str:
    """
    >>> format_bytes(16 << 20), format_bytes(3 << 29), format_bytes(1000)
    ('16 MiB', '1.5 GiB', '1000 bytes')
    """
    for unit, bits in (("GiB", 30), ("MiB", 20)):
        if size_bytes >= 1 << bits:
            return f"{size_bytes / (1 << bits):.1f}".removesuffix(".0") + f" {unit}"
    return f"{size_bytes} bytes"


def _cgroup_limits(root: Path) -> Iterator[Available]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _limits_above(mounted: Path, path: str, name: str) -> Iterator[Available]:
    """Limits of a cgroup and its ancestors. In a container the path may only exist outside, or begin with `..`."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for length in range(len(parts), -1, -1):
        directory = mounted.joinpath(*parts[:length])
        try:
            size_bytes = int((directory / name).read_text())
        except (OSError, ValueError):  # missing, or "max"
            continue
        if 0 < size_bytes < _UNLIMITED:
            yield Available(size_bytes, "the container" if length == 0 else f"cgroup /{'/'.join(parts[:length])}")


def _too_much(available: Available, fitting: int) -> str:
    return (
        f"{available.origin} has {format_bytes(available.size_bytes)}, of which the state may take "
        f"{format_bytes(fitting)} to leave room for the rest: when memory is full, the system may kill "
        "this process or the compaction"
    )
