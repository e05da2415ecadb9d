"""Streams on a cluster whose machines share no disk with the driver: in an object store, and with no storage at all."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.integration.bare_cluster import BareCluster, kill_driver
from tests.integration.frames import FrameClient
from tests.integration.object_store import ObjectStore
from tests.integration.serving import Served
from tests.integration.workload import EncryptedWorld, below, notified

from lavant.broker.matching import ScanMatcher
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Subscribed
from lavant.broker.storage.objects import open_storage
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.stream.sinks import read_manifests
from lavant.service.observability.metrics import FRESH_S_MAX

PATIENCE_S = 300.0
ROWS_MAX = 250


pytestmark = pytest.mark.usefixtures("credentials")


class Driver:
    """A driver in a process of its own, and what it has notified."""

    def __init__(self, cluster: BareCluster, directory: Path, place: str) -> None:
        self._cluster, self._directory, self._place = cluster, directory, place
        self.notifications = below(place, "notifications")
        self._storage = open_storage(self.notifications)
        self.process = self._start()

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.integration.driver", self._cluster.url, str(self._directory)]
        options = [str(ROWS_MAX), "at", self._place, *more]
        with (self._directory / "driver.log").open("ab") as log:
            return subprocess.Popen([*command, *options], stdout=log, stderr=subprocess.STDOUT)

    def batches(self) -> int:
        return len(self._storage.names("_manifests/"))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            log = (self._directory / "driver.log").read_text(errors="replace")
            assert self.process.poll() is None, f"the driver ended: {log[-3000:]}"
            assert time.monotonic() < deadline, f"it takes too long: {log[-3000:]}\n{self._cluster.logs()[-3000:]}"
            time.sleep(0.1)

    def more(self, batches: int) -> None:
        """Until so many more batches are committed."""
        wanted = self.batches() + batches
        self.until(lambda: self.batches() >= wanted)

    def until_a_part_waits_for_its_manifest(self, look: Callable[[int], None]) -> None:
        """Calls `look` meanwhile, with the number of publications that are notified."""

        def waits() -> bool:
            newest, done = max(self._storage.names("part-"), default=""), self.batches()
            if newest and int(newest.split("-")[1]) >= done:
                return True
            look(done * ROWS_MAX)
            return False

        self.until(waits)

    def kill(self) -> None:
        kill_driver(self.process)

    def again(self) -> None:
        """With Python workers behind Unix sockets, which users may choose."""
        self.process = self._start("sockets")

    def finish(self, publications: int) -> None:
        self.until(lambda: self.batches() * ROWS_MAX >= publications)
        assert read_manifests(self.notifications)[-1].end == publications
        (self._directory / "stop").touch()
        assert self.process.wait(90) == 0


@pytest.mark.parametrize("storage", ["s3", pytest.param("none", marks=pytest.mark.soak)])
def test_nothing_is_lost_or_repeated_whoever_is_killed(
    bare: BareCluster, objects: ObjectStore, elsewhere: Path, storage: str
) -> None:
    directory = elsewhere / storage
    directory.mkdir()
    place = objects.uri("stream") if storage == "s3" else str(directory)
    total = 750
    world = EncryptedWorld(place, subscriptions=2000, publications=total, slices=4)

    def publish(count: int) -> None:
        nonlocal total
        world.publish(count)
        total += count

    def keep_busy(notified: int) -> None:
        if notified >= total:
            publish(ROWS_MAX)

    driver = Driver(bare, directory, place)
    try:
        driver.more(1)
        publish(1250)
        bare.kill_python_worker()
        driver.more(1)
        if storage == "s3":  # without storage, the driver writes the parts itself
            driver.until_a_part_waits_for_its_manifest(keep_busy)
        bare.kill_executor()
        publish(ROWS_MAX)
        driver.more(1)
        publish(500)
        driver.kill()
        assert driver.batches() * ROWS_MAX < total
        driver.again()
        driver.finish(total)
    finally:
        driver.process.kill()
        driver.process.wait()
    assert notified(driver.notifications) == world.expected()
    for worker in bare.workers:
        assert not worker.sees(directory / "driver.log")


def test_the_engine_of_a_server_needs_nothing_mounted(bare: BareCluster, elsewhere: Path) -> None:
    chance = random.Random(3)
    filters = [f"a between {low} and {low + chance.randrange(5, 40)}" for low in range(0, 60, 3)]
    options = ("--engine", "spark", "--master", bare.url, "--hosts-max", "2")
    with Served(elsewhere / "data", *options) as server, FrameClient(server.port) as client:
        for number, filter in enumerate(filters):
            assert isinstance(client.ask(Subscribe(filter, f"r{number}")), Subscribed)
        rows = [{"n": n, "a": chance.randrange(100)} for n in range(600)]
        for start in range(0, 600, 200):
            answer = client.ask(Publish([msgspec.json.encode(row) for row in rows[start : start + 200]]))
            assert isinstance(answer, Published)
            if start == 0:
                delivered(server)
                bare.kill_python_worker()
            elif start == 200:
                bare.kill_executor()
        delivered(server)
        matcher = ScanMatcher()
        matcher.add(range(len(filters)), filters)
        matches = matcher.match(PublicationBatch.from_dicts(rows))
        wanted: dict[int, list[int]] = {number: [] for number in range(len(filters))}
        for n in range(len(rows)):
            for number in matches.of(n).tolist():
                wanted[number].append(n)
        for number in range(len(filters)):
            found = [msgspec.json.decode(body)["n"] for body in client.drain(f"r{number}")]
            assert sorted(found) == wanted[number]
    for worker in bare.workers:
        assert not worker.sees(elsewhere / "data")


def delivered(server: Served) -> None:
    time.sleep(FRESH_S_MAX)  # the figures may be so old
    deadline = time.monotonic() + PATIENCE_S
    while server.metric("lavant_engine_owed"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
