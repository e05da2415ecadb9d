"""The checks of `lavant doctor`: this machine (Python, Java, open files, disk, kernels), and a server."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from lavant.cli.reports.fetch import fetch, http_address, opened
from lavant.core.errors import Denied, LavantError, MissingComponent, ServerUnreachable, Unavailable
from lavant.core.packages import named_extras

PYTHON_MIN = (3, 11)
FILES_MIN = 4096
FREE_BYTES_MIN = 1 << 30
SYNCS = 50
SYNC_MS_SLOW = 10.0
BLOCK_BYTES = 4096

TIMEOUT_S = 3.0
CLOCK_S_MAX = 5.0
APART_S_MAX = 60.0
"""Difference between server time and its wall clock that is not worth a note."""

MEMORY_NOTED, MEMORY_FULL = 0.8, 0.99
"""Shares of the memory limit."""


class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something is missing that not everybody needs."""
    BAD = "bad"
    """Lavant will not work well."""


class Finding(msgspec.Struct, frozen=True):
    what: str
    verdict: CheckVerdict
    said: str
    """The result, in words."""
    remedy: str = ""


def python() -> Finding:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return Finding("Python", CheckVerdict.BAD, version, f"install {'.'.join(map(str, PYTHON_MIN))} or newer")
    return Finding("Python", CheckVerdict.OK, f"{version} ({platform.python_implementation()})")


def java() -> Finding:
    try:
        from lavant.pipeline.session import check_java  # noqa: PLC0415

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
    try:
        with named_extras():
            from lavant.broker.matching import PlainMatcher  # noqa: PLC0415
            from lavant.core.kernels.cache import cache_state  # noqa: PLC0415
            from lavant.core.publications.batch import PublicationBatch  # noqa: PLC0415
    except MissingComponent as error:
        return Finding("matching", CheckVerdict.NOTE, str(error), "only a server, and matchers of your own, need it")
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


def server(url: str, key: str = "", ca_file: Path | None = None, *, is_expected: bool = True) -> list[Finding]:
    """Whether the server is ready and knows the key, the clocks agree, memory is left, and its disk has room and is
    not slow. A server that is not there is bad if it `is_expected`.
    """
    name = f"server at {http_address(url)}"
    try:
        with opened(url, "/readyz", key, ca_file, timeout_s=TIMEOUT_S) as response:
            said, date = response.read(1000).decode(errors="replace").strip(), response.headers.get("date")
    except LavantError as error:
        return [_no_answer(name, error, is_expected=is_expected)]
    findings = [Finding(name, CheckVerdict.OK, said), *_key(url, key, ca_file)]
    if date is not None:
        findings.append(_clock(parsedate_to_datetime(date).timestamp()))
    metrics = _metrics(url, key, ca_file)
    return [*findings, *_memory(metrics), *_server_disk(metrics), *_own_time(metrics)]


def _no_answer(name: str, error: LavantError, *, is_expected: bool) -> Finding:
    if isinstance(error, Unavailable) and not isinstance(error, ServerUnreachable):
        return Finding(name, CheckVerdict.BAD, f"not ready: {error}", "look at its log")
    said, _, remedy = str(error).partition("; ")
    is_absent = isinstance(error, ServerUnreachable) and not is_expected
    return Finding(name, CheckVerdict.NOTE if is_absent else CheckVerdict.BAD, said, remedy)


def _key(url: str, key: str, ca_file: Path | None) -> list[Finding]:
    """Whether the server takes requests with this key, or without one."""
    try:
        fetch(url, "/queues?limit=1", key, ca_file, timeout_s=TIMEOUT_S)
    except Denied as error:
        said, _, remedy = str(error).partition("; ")
        return [Finding("API key", CheckVerdict.BAD, said, remedy)]
    except LavantError as error:
        return [Finding("API key", CheckVerdict.NOTE, f"not tried: {error}")]
    return [Finding("API key", CheckVerdict.OK, "known to the server")] if key else []


def _metrics(url: str, key: str, ca_file: Path | None) -> dict[str, float]:
    """Metrics without labels; empty if /metrics is not accessible."""
    try:
        text = fetch(url, "/metrics", key, ca_file, timeout_s=TIMEOUT_S).decode(errors="replace")
    except LavantError:
        return {}
    return {name: float(value) for name, value in re.findall(r"^(lavant_\w+) (-?[0-9.e+-]+)$", text, re.MULTILINE)}


def _memory(metrics: dict[str, float]) -> list[Finding]:
    """Memory used, as a share of the limit."""
    held, limit = metrics.get("lavant_memory_bytes"), metrics.get("lavant_memory_limit_bytes")
    if held is None or not limit:
        return []
    said = f"{held / (1 << 20):,.0f} of {limit / (1 << 20):,.0f} MiB for messages, queues, jobs and subscriptions"
    if held < MEMORY_NOTED * limit:
        return [Finding("server's memory", CheckVerdict.OK, said)]
    remedy = "receive or delete messages, or start it with a larger --memory-max: new messages are refused"
    return [
        Finding("server's memory", CheckVerdict.BAD if held > MEMORY_FULL * limit else CheckVerdict.NOTE, said, remedy)
    ]


def _server_disk(metrics: dict[str, float]) -> list[Finding]:
    """Whether there is room on the disk of the server, and how long its commits take."""
    name, free = "server's disk", metrics.get("lavant_disk_free_bytes")
    if free is None:
        return []  # it has none, or is of an earlier version
    if metrics.get("lavant_storage_full"):
        remedy = "free space on the disk of its data directory, and it goes on by itself"
        return [Finding(name, CheckVerdict.BAD, "full: nothing new is accepted", remedy)]
    total_s, commits = metrics.get("lavant_commit_seconds_sum", 0.0), metrics.get("lavant_commit_seconds_count", 0.0)
    mean_ms = 1e3 * total_s / max(commits, 1.0)
    said = f"{free / (1 << 30):,.1f} GiB free, a commit took {mean_ms:,.2f} ms on average"
    if mean_ms < SYNC_MS_SLOW:
        return [Finding(name, CheckVerdict.OK, said)]
    return [Finding(name, CheckVerdict.NOTE, said, "clients wait for commits; put its data on a faster disk")]


def _own_time(metrics: dict[str, float]) -> list[Finding]:
    """Whether the server's own time, by which leases and messages expire, agrees with its wall clock."""
    ahead_s = metrics.get("lavant_clock_ahead_seconds")
    if ahead_s is None:
        return []
    if abs(ahead_s) <= APART_S_MAX:
        return [Finding("server's time", CheckVerdict.OK, "agrees with its clock")]
    said = f"{timedelta(seconds=round(abs(ahead_s)))} {'ahead of' if ahead_s > 0 else 'behind'} its clock"
    remedy = "set the clock right" if ahead_s > 0 else "if its clock is right, start it with --clock-jump accept"
    return [Finding("server's time", CheckVerdict.NOTE, said, remedy)]


def _clock(server_s: float) -> Finding:
    apart_s = abs(time.time() - server_s)
    if apart_s > CLOCK_S_MAX:
        said = f"the server's is {apart_s:.0f} s apart from this machine's"
        return Finding("clocks", CheckVerdict.NOTE, said, "signatures of SQS clients may be refused; synchronise them")
    return Finding("clocks", CheckVerdict.OK, "the server's and this machine's agree")
