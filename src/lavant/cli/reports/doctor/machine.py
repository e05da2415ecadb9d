"""Checks of the machine: Python, Java, open files, disk, compiled kernels."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lavant.cli.reports.doctor.findings import CheckVerdict, Finding
from lavant.core.errors import MissingComponent

PYTHON_MIN = (3, 11)
FILES_MIN = 4096
FREE_BYTES_MIN = 1 << 30
SYNCS = 50
SYNC_MS_SLOW = 10.0
BLOCK_BYTES = 4096


def python() -> Finding:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return Finding("Python", CheckVerdict.BAD, version, f"install {'.'.join(map(str, PYTHON_MIN))} or newer")
    return Finding("Python", CheckVerdict.OK, f"{version} ({platform.python_implementation()})")


def java() -> Finding:
    from lavant.pipeline.session import check_java  # noqa: PLC0415

    try:
        check_java()
    except MissingComponent as error:
        return Finding("Java", CheckVerdict.NOTE, str(error), "only `--engine spark` and `lavant stream` need it")
    return Finding("Java", CheckVerdict.OK, "new enough for Spark")


def open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_MIN:
        return Finding("open files", CheckVerdict.NOTE, f"at most {hard:,}", "raise `ulimit -n` for many connections")
    return Finding("open files", CheckVerdict.OK, "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")


def disk(directory: Path) -> Finding:
    """Free space and sync time: every reply of a durable server waits for a sync."""
    name = f"disk of {directory}"
    try:
        free = shutil.disk_usage(directory).free
        sync_ms = sync_time_ms(directory)
    except OSError as error:
        return Finding(name, CheckVerdict.BAD, str(error), "choose a directory that exists and can be written")
    said = f"{free / (1 << 30):,.1f} GiB free, a sync takes {sync_ms:.2f} ms"
    if free < FREE_BYTES_MIN:
        return Finding(name, CheckVerdict.BAD, said, "make room: a full disk refuses new messages")
    if sync_ms > SYNC_MS_SLOW:
        return Finding(name, CheckVerdict.NOTE, said, "a slow disk slows every durable answer; use an SSD")
    return Finding(name, CheckVerdict.OK, said)


def sync_time_ms(directory: Path) -> float:
    """Median time of a sync."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(SYNCS * BLOCK_BYTES))
        file.flush()
        os.fsync(file.fileno())
        for number in range(SYNCS):
            started = time.perf_counter()
            os.pwrite(file.fileno(), bytes(BLOCK_BYTES), number * BLOCK_BYTES)
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def kernels() -> Finding:
    """Whether matchers work and compiled kernels are cached."""
    from lavant.broker.matching import PlainMatcher  # noqa: PLC0415
    from lavant.core.kernels.cache import cache_state  # noqa: PLC0415
    from lavant.core.publications.batch import PublicationBatch  # noqa: PLC0415

    started = time.perf_counter()
    matcher = PlainMatcher()
    matcher.add([1, 2], ["price > 10 and symbol = 'IBM'", "symbol like 'I%'"])
    found = matcher.match(PublicationBatch.from_dicts([{"price": 11, "symbol": "IBM"}])).of(0).tolist()
    took_s = time.perf_counter() - started
    if sorted(found) != [1, 2]:
        return Finding("matching", CheckVerdict.BAD, f"found {found} instead of [1, 2]", "report this as a bug")
    problem = cache_state().problem
    if problem is not None:
        said = f"works ({took_s:.1f} s), but compiled kernels are not cached"
        return Finding("matching", CheckVerdict.NOTE, said, f"{problem}, or each start compiles them")
    return Finding("matching", CheckVerdict.OK, f"works, ready in {took_s:.1f} s")


def memory() -> Finding:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return Finding("machine", CheckVerdict.OK, f"{cores} cores, {total / (1 << 30):.0f} GiB, {platform.platform()}")
