"""Metrics of the process, the build and the disk. Those of the process have the names that Prometheus' clients use."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from lavant.broker.storage.journal.manifest import MANIFEST, is_segment, is_snapshot
from lavant.service.engines.factory import DIRECTORY as SPARK
from lavant.service.observability.openmetrics import MetricFamily

_STATUS = Path("/proc/self/status")
_RESIDENT = "VmRSS:"
_SECTOR_BYTES = 512
"""Of `st_blocks`, on every file system."""


class ProcessMetrics:
    """`data` is the data directory, if there is one."""

    def __init__(self, data: Path | None) -> None:
        self._data = data
        self._start_s = time.time()

    def families(self) -> Iterator[MetricFamily]:
        yield MetricFamily(
            "lavant_build",
            "info",
            "The version of Lavant and of Python.",
            [({"version": version("lavant"), "python": platform.python_version()}, 1)],
        )
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield _one("process_cpu_seconds", "counter", "CPU time.", used.ru_utime + used.ru_stime, "seconds")
        yield _one("process_start_time_seconds", "gauge", "Start, in Unix time.", self._start_s, "seconds")
        yield _one("process_resident_memory_bytes", "gauge", "Resident memory.", _resident_bytes(used), "bytes")
        yield _one("process_open_fds", "gauge", "Open file descriptors.", len(os.listdir("/dev/fd")))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield _one("process_max_fds", "gauge", "Limit of open file descriptors.", limit)
        if self._data is not None:
            yield from _disk(self._data)


def _disk(data: Path) -> Iterator[MetricFamily]:
    disk = os.statvfs(data)
    size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    yield _one("lavant_disk_size_bytes", "gauge", "Size of the data directory's file system.", size, "bytes")
    yield _one("lavant_disk_free_bytes", "gauge", "Free space there, for the server's user.", free, "bytes")
    own = (path for path in data.iterdir() if path.name == MANIFEST or is_segment(path.name) or is_snapshot(path.name))
    yield _one("lavant_journal_disk_bytes", "gauge", "Disk space of the journal's files.", _space(own), "bytes")
    logs = _space(data.glob(f"{SPARK}/*/log/*"))
    yield _one("lavant_log_disk_bytes", "gauge", "Disk space of the publication logs' files.", logs, "bytes")


def _space(paths: Iterable[Path]) -> int:
    """Allocated bytes, including those that are only reserved."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_blocks * _SECTOR_BYTES
        except FileNotFoundError:  # removed since it was listed
            continue
    return total


def _resident_bytes(used: resource.struct_rusage) -> int:
    """Now, or at most ever, on systems that do not tell."""
    try:
        text = _STATUS.read_text()
    except OSError:
        return used.ru_maxrss * 1024
    return int(text[text.index(_RESIDENT) + len(_RESIDENT) :].split(None, 1)[0]) * 1024


def _one(name: str, kind: str, help: str, value: float, unit: str = "") -> MetricFamily:
    return MetricFamily(name, kind, help, [({}, value)], unit)
