"""Batches that follow the log, on real Spark in local mode: what arrives is what the oracle says, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.processes import descendants, python_workers
from tests.integration.workload import Row, append, expected, filters, notified, rows

from lavant.broker.slices import SliceStore
from lavant.core.errors import FailedStream
from lavant.pipeline.stream.driver import RunningStream, start
from lavant.pipeline.stream.sinks import read_manifests
from lavant.pipeline.stream.small_batches import SMALL_ROWS_MAX

WAIT_S_MAX = 120.0
TEXTS = dict(enumerate(filters(300)))


@pytest.fixture
def spark(shared_spark: SparkSession) -> SparkSession:
    return shared_spark


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "subscriptions", slices=4)
    made.add(range(300), filters(300))
    return made


def following(spark: SparkSession, directory: Path, small_rows_max: int = SMALL_ROWS_MAX) -> RunningStream:
    return start(
        spark,
        log=directory / "log",
        subscriptions=directory / "subscriptions",
        output=directory,
        hosts=2,
        small_rows_max=small_rows_max,
    )


def until(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.005)


def named(prefix: str, count: int, seed: int) -> list[Row]:
    return [{**row, "@id": f"{prefix} {row['@id']}"} for row in rows(count, seed=seed)]


def committed(directory: Path) -> int:
    manifests = read_manifests(directory / "notifications")
    return manifests[-1].end if manifests else 0


def check_ranges(directory: Path, end: int) -> None:
    """Every offset once, and no parts but those of the manifests."""
    manifests = read_manifests(directory / "notifications")
    assert [each.start for each in manifests] == [0, *(each.end for each in manifests[:-1])]
    assert manifests[-1].end == end
    parts = {part.name for each in manifests for part in each.parts}
    assert {path.name for path in (directory / "notifications").glob("part-*")} == parts


def test_a_batch_goes_on_with_what_is_appended(spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    parts = [named(f"part {number}", 10, number) for number in range(40)]
    append(tmp_path / "log", parts[0])
    running = following(spark, tmp_path)
    for number, part in enumerate(parts[1:], 1):
        until(lambda number=number: running.position == number * 10)  # type: ignore[misc]
        if number == 20:
            store.add([1000], ["volume >= 0"])
        append(tmp_path / "log", part)
    until(lambda: running.position == 400)
    running.process_all_available()
    progress = [each for each in running.query.recentProgress if each["numInputRows"]]
    running.stop()
    manifests = read_manifests(tmp_path / "notifications")
    assert len(progress) < len(manifests), "no batch went on"
    assert sum(each["numInputRows"] for each in progress) == 400
    assert sum(each["observedMetrics"]["lavant_access"]["publications"] for each in progress) == 400
    with_all = {**TEXTS, 1000: "volume >= 0"}
    before, after = ([row for part in some for row in part] for some in (parts[:20], parts[20:]))
    assert notified(tmp_path / "notifications") == expected(TEXTS, before) | expected(with_all, after)
    check_ranges(tmp_path, 400)


def test_what_piles_up_is_matched_in_large_batches(spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    sizes = [5, 5, 900, 5, 300, 301, 5]
    parts = [named(f"part {number}", size, number) for number, size in enumerate(sizes)]
    append(tmp_path / "log", parts[0])
    running = following(spark, tmp_path, 300)
    for number, part in enumerate(parts[1:], 1):
        until(lambda number=number: running.position == sum(sizes[:number]))  # type: ignore[misc]
        append(tmp_path / "log", part)
    until(lambda: running.position == sum(sizes))
    running.stop()
    large = [each for each in read_manifests(tmp_path / "notifications") if each.end - each.start > 300]
    assert [len(each.parts) for each in large] == [2, 2], "an exit task of each host"
    assert notified(tmp_path / "notifications") == expected(TEXTS, [row for part in parts for row in part])
    check_ranges(tmp_path, sum(sizes))


class Publisher(threading.Thread):
    """Appends a few publications at a time, until it is told to stop."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self._stop_event = threading.Event()
        self.published: list[Row] = []

    def run(self) -> None:
        while not self._stop_event.wait(0.1):
            part = named(f"part {len(self.published)}", 15, len(self.published))
            append(self._log, part)
            self.published += part

    def finish(self) -> int:
        self._stop_event.set()
        self.join()
        return len(self.published)


def test_a_stream_that_is_stopped_continues_where_it_was(
    spark: SparkSession, store: SliceStore, tmp_path: Path
) -> None:
    append(tmp_path / "log", [])
    publisher = Publisher(tmp_path / "log")
    publisher.start()
    try:
        for _ in range(4):
            running = following(spark, tmp_path)
            goal = committed(tmp_path) + 60
            until(lambda running=running, goal=goal: running.position >= goal)  # type: ignore[misc]
            running.stop()
            check_ranges(tmp_path, running.position)
    finally:
        end = publisher.finish()
    running = following(spark, tmp_path)
    until(lambda: running.position == end)
    running.stop()
    assert notified(tmp_path / "notifications") == expected(TEXTS, publisher.published)
    check_ranges(tmp_path, end)


def test_killed_workers_of_batches_that_follow_lose_nothing_and_repeat_nothing(
    spark: SparkSession, store: SliceStore, tmp_path: Path
) -> None:
    publisher = Publisher(tmp_path / "log")
    publisher.start()
    failures = 0
    try:
        for _ in range(3):
            running = following(spark, tmp_path)
            goal = committed(tmp_path) + 60
            until(lambda running=running, goal=goal: running.position >= goal)  # type: ignore[misc]
            for worker in python_workers():
                os.kill(worker, signal.SIGKILL)
            try:
                running.wait()
            except FailedStream:
                failures += 1
    finally:
        end = publisher.finish()
    assert failures == 3, "of a local Spark, which repeats no task"
    running = following(spark, tmp_path)
    until(lambda: running.position == end)
    running.stop()
    assert notified(tmp_path / "notifications") == expected(TEXTS, publisher.published)


def test_a_killed_driver_loses_nothing_and_repeats_nothing(store: SliceStore, tmp_path: Path) -> None:
    publisher = Publisher(tmp_path / "log")
    publisher.start()
    command = [sys.executable, "-m", "tests.integration.driver", "local[2]", str(tmp_path), "follow"]
    try:
        for _ in range(2):
            driver = subprocess.Popen(command)
            goal = committed(tmp_path) + 60
            until(lambda goal=goal: committed(tmp_path) >= goal)  # type: ignore[misc]
            below = descendants(driver.pid)
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            until(lambda below=below: not any(Path(f"/proc/{each.pid}").exists() for each in below))  # type: ignore[misc]
    finally:
        end = publisher.finish()
    driver = subprocess.Popen(command)
    until(lambda: committed(tmp_path) == end)
    (tmp_path / "stop").touch()
    assert driver.wait(WAIT_S_MAX) == 0
    assert notified(tmp_path / "notifications") == expected(TEXTS, publisher.published)
    check_ranges(tmp_path, end)
