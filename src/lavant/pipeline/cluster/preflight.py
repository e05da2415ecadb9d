"""Preflight: before the first batch, each executor says what it has and what it reaches.

Two small jobs run on every executor. The first needs nothing of Lavant there, and says which versions there are. The
second opens the storages that the stream will use, and reads from them what the driver has put there. What does not
fit is one line that names the machine and the remedy. A local path need not be seen by executors: what is there travels
through Spark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from pyspark.sql import SparkSession

from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import LavantError, MissingComponent
from lavant.core.files import is_uri
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.executors import Executors
from lavant.pipeline.internals.failures import reported
from lavant.pipeline.internals.stages import PlacedTask, run_tasks

EXECUTORS_S_MAX = 120.0
"""Until those that were asked for have registered, or at least one has."""
SETTLE_S = 2.0
"""Executors that register within this time after the last one are asked too."""
THREADS_MAX = 32
SAMPLE_BYTES = 1 << 20
SHIP = "ship it with `lavant spark pack` and --archive"
REMEDY = "check that machine's network and its credentials (--conf spark.executorEnv.NAME=VALUE sets its variables)"
DESCRIPTIONS = ("store.json", "log.json")
"""Objects that tell slice stores and logs from others: they hold identities."""


class Installation(msgspec.Struct, frozen=True):
    """What a machine runs; None is not installed."""

    host: str
    python: str
    lavant: str | None
    code: str | None
    """A digest of Lavant's modules: versions under development differ in it."""
    pyspark: str | None
    pyarrow: str | None
    numpy: str | None
    time_s: float


class PlaceSeen(msgspec.Struct, frozen=True):
    """What an executor sees of a place."""

    place: str
    problem: str | None
    read_ms: float | None = None
    read_bytes: int = 0
    """Read within that time: a megabyte, or the description of a log or store."""
    written: str | None = None
    """An object that the executor has put there."""


class ExecutorReport(msgspec.Struct, frozen=True):
    """What one executor said, and what is wrong with it."""

    id: str
    address: str
    """Of its machine, as Spark knows it."""
    installation: Installation | None
    clock_s: float = 0.0
    """How far its clock is ahead of the driver's, beyond what the question itself took."""
    places: list[PlaceSeen] = []
    problems: list[str] = []

    @property
    def machine(self) -> str:
        name = self.address if self.installation is None else self.installation.host
        return f"{name} (executor {self.id})"


def preflight(spark: SparkSession, *places: str | Path) -> list[ExecutorReport]:
    """Ask all executors; raises `MissingComponent` with the first problem. In local mode there is none to ask."""
    reports = survey(spark, places)
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        more = f" (and {len(problems) - 1} more; see `lavant spark check`)" if len(problems) > 1 else ""
        raise MissingComponent(f"{problems[0]}{more}")
    return reports


def survey(spark: SparkSession, places: Sequence[str | Path] = ()) -> list[ExecutorReport]:
    """What each executor says, problems included."""
    master = str(spark.sparkContext.master)
    if re.match(r"local\b(?!-)", master):
        return []
    executors = Executors(spark)
    wanted = int(str(spark.conf.get("spark.executor.instances", "1")))
    ids = _registered(executors, master, wanted)
    own = msgspec.json.decode(_installation_probe()(b""), type=Installation)
    with ThreadPoolExecutor(min(THREADS_MAX, len(ids))) as threads:
        reports = list(threads.map(lambda id: _installed(spark, id, own), ids))
        if places and not any(report.problems for report in reports):
            with _samples([*map(_storage, places)]) as samples:
                reports = list(threads.map(lambda report: _with_places(spark, report, samples), reports))
    return reports


def check_here(places: Sequence[str | Path]) -> None:
    """Raise in one line if the driver's machine does not reach a place. In local mode it is all there is."""
    with _samples([*map(_storage, places)]):
        pass


def _storage(place: str | Path) -> ObjectStorage:
    """Executors have other working directories, so a path must be absolute."""
    return open_storage(place if is_uri(str(place)) else Path(place).absolute())


def _registered(executors: Executors, master: str, wanted: int) -> list[str]:
    """Waits for the wanted executors, and for those that come with them; some must come in time."""
    deadline = time.monotonic() + EXECUTORS_S_MAX
    known: list[str] = []
    changed = time.monotonic()
    while len(known) < wanted or time.monotonic() - changed < SETTLE_S:
        ids = executors.ids()
        if ids != known:
            known, changed = ids, time.monotonic()
        if time.monotonic() > deadline:
            if known:
                break
            raise MissingComponent(
                f"{master} gave no executor within {EXECUTORS_S_MAX:.0f} s: none of its machines has the cores and "
                "memory that were asked for, or executors cannot reach the driver; ask for less with --conf "
                "spark.executor.memory=…, free some, or name the driver's address with --driver-host"
            )
        time.sleep(0.1)
    return known


def _ask(spark: SparkSession, id: str, work: Callable[[bytes], bytes], data: bytes = b"") -> bytes:
    location = Executors(spark).location(id)
    task = PlacedTask(ANYWHERE if location is None else location, data)
    [answer] = run_tasks(spark.sparkContext, [task], work, "preflight")
    return answer


def _installed(spark: SparkSession, id: str, own: Installation) -> ExecutorReport:
    address = Executors(spark).host(id) or "unknown"
    asked = time.time()
    try:
        found = _ask(spark, id, _installation_probe())
    except Exception as error:
        return ExecutorReport(id, address, None, problems=[str(reported(error))])
    answered = time.time()
    seen = msgspec.json.decode(found, type=Installation)
    ahead = min(seen.time_s - asked, 0.0) or max(seen.time_s - answered, 0.0)
    report = ExecutorReport(id, address, seen, ahead)
    return msgspec.structs.replace(report, problems=[*_differences(report.machine, seen, own)])


def _differences(machine: str, seen: Installation, own: Installation) -> Iterator[str]:
    """In words; Python may differ in its micro version."""
    if seen.lavant is None:
        yield f"machine {machine} has no Lavant: install Lavant {own.lavant} there, or {SHIP}"
        return
    minor = seen.python.rpartition(".")[0], own.python.rpartition(".")[0]
    for name, (there, here) in zip(
        ("Lavant", "Python", "PySpark"), ((seen.lavant, own.lavant), minor, (seen.pyspark, own.pyspark)), strict=True
    ):
        if there != here:
            yield f"machine {machine} has {name} {there}, the driver {here}: install the same version there, or {SHIP}"
            return
    if seen.code != own.code:
        yield f"machine {machine} has other code of Lavant {own.lavant} than the driver: install the same, or {SHIP}"


def _installation_probe() -> Callable[[bytes], bytes]:
    """A function that Spark ships whole: it refers to nothing of Lavant, which may be missing where it runs."""

    def version(package: str) -> str | None:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # a module on PYTHONPATH, such as Spark's own
            spec = importlib.util.find_spec(package)
            return None if spec is None else str(getattr(__import__(package), "__version__", "of unknown version"))

    def code() -> str | None:
        spec = importlib.util.find_spec("lavant")
        if spec is None or not spec.submodule_search_locations:
            return None
        digest = hashlib.sha256()
        for directory, names, files in os.walk(spec.submodule_search_locations[0]):
            names.sort()
            for name in sorted(name for name in files if name.endswith(".py")):
                with open(os.path.join(directory, name), "rb") as file:
                    digest.update(name.encode() + b"\0" + file.read())
        return digest.hexdigest()[:16]

    def look(_: bytes) -> bytes:
        packages = {name: version(name) for name in ("lavant", "pyspark", "pyarrow", "numpy")}
        host, python = socket.gethostname(), platform.python_version()
        found = {"host": host, "python": python, "code": code(), "time_s": time.time(), **packages}
        return json.dumps(found).encode()

    return look


class _Sample(msgspec.Struct, frozen=True):
    """An object that the driver has read or put at a place, for executors to find there."""

    address: str
    uri: str
    name: str
    digest: str
    is_own: bool
    """Put there for the preflight, so that executors may write beside it."""


@contextmanager
def _samples(places: list[ObjectStorage]) -> Iterator[list[_Sample]]:
    """The description of a log or store where there is one; elsewhere a new object, which is removed again."""
    samples = []
    made = []
    try:
        for place in places:
            path = place.path("preflight")
            if path is not None and not path.parent.exists():
                made.append(path.parent)
            name = next((each for each in DESCRIPTIONS if place.size(each) is not None), None)
            if name is None:
                content = os.urandom(SAMPLE_BYTES)
                sample = _Sample(place.address, place.uri, f"preflight-{uuid4().hex}", _digest(content), True)
                samples.append(sample)
                place.write(sample.name, [content])
            else:
                samples.append(_Sample(place.address, place.uri, name, _digest(place.read(name)), False))
        yield samples
    finally:
        for sample in samples:
            if sample.is_own:
                storage = open_storage(sample.address)
                for name in storage.names(sample.name):
                    storage.remove(name)
        for directory in made:
            with suppress(OSError):
                directory.rmdir()


def _with_places(spark: SparkSession, report: ExecutorReport, samples: list[_Sample]) -> ExecutorReport:
    machine = report.machine
    try:
        answer = _ask(spark, report.id, look_at, msgspec.msgpack.encode(samples))
    except Exception as error:
        return msgspec.structs.replace(report, problems=[str(reported(error))])
    seen = msgspec.msgpack.decode(answer, type=list[PlaceSeen])
    for number, (sample, each) in enumerate(zip(samples, seen, strict=True)):
        if each.written is not None and open_storage(sample.address).size(each.written) is None:
            seen[number] = msgspec.structs.replace(each, problem="what it writes there does not arrive")
    problems = [
        f"machine {machine}, {each.place}: {each.problem}; {REMEDY}"
        for each in seen
        if each.problem is not None and is_uri(each.place)
    ]
    return msgspec.structs.replace(report, places=seen, problems=problems)


def look_at(samples: bytes) -> bytes:
    """Runs on an executor: reads the samples, and writes beside those that are the preflight's own."""
    return msgspec.msgpack.encode([_look_at(each) for each in msgspec.msgpack.decode(samples, type=list[_Sample])])


def _look_at(sample: _Sample) -> PlaceSeen:
    storage = open_storage(sample.address)
    started = time.monotonic()
    try:
        content = storage.read(sample.name)
    except FileNotFoundError:
        return PlaceSeen(sample.uri, f"{'a file' if sample.is_own else sample.name} of the driver is not there")
    except (LavantError, OSError) as error:
        return PlaceSeen(sample.uri, f"cannot be read ({error})")
    read_ms = (time.monotonic() - started) * 1000
    if _digest(content) != sample.digest:
        return PlaceSeen(
            sample.uri, f"{'a file' if sample.is_own else sample.name} is not the driver's: another storage"
        )
    written = None
    if sample.is_own:
        written = f"{sample.name}-{uuid4().hex}"
        try:
            storage.write(written, [b"written by an executor"])
        except (LavantError, OSError) as error:
            return PlaceSeen(sample.uri, f"cannot be written to ({error})")
    return PlaceSeen(sample.uri, None, read_ms, len(content), written)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
