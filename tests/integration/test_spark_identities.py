"""Stores and logs that are made anew at the same path, under caches, checkpoints and placements of the old ones."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.integration.workload import append, expected, filters, notified, rows

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader
from lavant.control.placement import Enforcer, PlacementConfig
from lavant.core.errors import IdentityMismatch, LavantError
from lavant.core.ids import HostId, SliceId
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.cluster.manager import ClusterManager, ManagerState
from lavant.pipeline.stream.driver import start
from lavant.pipeline.tables import match

EVENTS = [{"@id": "e", "volume": 50}]


def make_store(directory: Path, *texts: str, slices: int = 2) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    SliceStore.create(directory, slices=slices).add(range(len(texts)), list(texts))
    return directory


def make_log(directory: Path, publications: list[dict[str, object]]) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    append(directory, publications)
    return directory


def run(spark: SparkSession, home: Path, output: str = "out", **options: str) -> dict[str, list[int]]:
    log, store = home / "log", home / "subscriptions"
    running = start(
        spark, log=log, subscriptions=store, output=home / output, hosts=2, available_now=True, options=options
    )
    running.wait(LogReader(log).end())
    return notified(home / output / "notifications")


def test_a_store_made_anew_is_matched_with_its_own_filters(shared_spark: SparkSession, tmp_path: Path) -> None:
    """The numbers of its versions are those of the old one, and its slices may be more or fewer."""
    frame = shared_spark.createDataFrame([(1, 50), (2, 5)], "event int, volume int").coalesce(1)
    for text, wanted, slices in (("volume > 40", {1}, 2), ("volume < 40", {2}, 2), ("volume > 1", {1, 2}, 5)):
        store = make_store(tmp_path / "subscriptions", text, slices=slices)
        assert {row.event for row in match(frame, store).collect()} == wanted


def test_a_planned_table_keeps_the_subscriptions_of_its_plan(shared_spark: SparkSession, tmp_path: Path) -> None:
    frame = shared_spark.createDataFrame([(1, 50), (2, 5)], "event int, volume int")
    matched = match(frame, make_store(tmp_path / "subscriptions", "volume > 40"))
    make_store(tmp_path / "subscriptions", "volume < 40")
    assert [row.event for row in matched.collect()] == [1]


def test_a_log_and_a_store_made_anew_are_streamed_as_what_they_are(shared_spark: SparkSession, tmp_path: Path) -> None:
    for seed in (1, 2):
        texts, publications = dict(enumerate(filters(20, seed))), rows(50, seed)
        make_store(tmp_path / "subscriptions", *texts.values())
        make_log(tmp_path / "log", publications)
        assert run(shared_spark, tmp_path, f"out{seed}") == expected(texts, publications)


def test_notifications_are_of_one_log(shared_spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "subscriptions", "volume >= 0")
    make_log(tmp_path / "log", rows(30))
    before = run(shared_spark, tmp_path)
    shutil.copytree(tmp_path / "log", tmp_path / "kept")
    make_log(tmp_path / "log", rows(60, seed=7))
    with pytest.raises(IdentityMismatch, match="notifications of another log"):
        run(shared_spark, tmp_path)
    assert notified(tmp_path / "out" / "notifications") == before


def test_notifications_beyond_the_end_of_a_log_without_identity_are_refused(
    shared_spark: SparkSession, tmp_path: Path
) -> None:
    make_store(tmp_path / "subscriptions", "volume >= 0")
    make_log(tmp_path / "log", rows(30))
    (tmp_path / "log" / "log.json").unlink()
    run(shared_spark, tmp_path)
    make_log(tmp_path / "log", rows(10))
    with pytest.raises(IdentityMismatch, match=r"is at offset 30, but .* ends at 10"):
        run(shared_spark, tmp_path)


def test_a_stream_goes_on_when_its_log_of_old_gets_an_identity(shared_spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "subscriptions", "volume >= 0")
    make_log(tmp_path / "log", rows(30))
    (tmp_path / "log" / "log.json").unlink()
    run(shared_spark, tmp_path)
    later = [{**row, "@id": f"later {row['@id']}"} for row in rows(10)]
    append(tmp_path / "log", later)
    assert len(run(shared_spark, tmp_path)) == 40
    assert len(run(shared_spark, tmp_path)) == 40


def test_a_log_or_a_store_made_anew_under_a_running_stream_stops_it(shared_spark: SparkSession, tmp_path: Path) -> None:
    store = make_store(tmp_path / "subscriptions", "volume >= 0")
    log = make_log(tmp_path / "log", EVENTS * 3)
    running = start(shared_spark, log=log, subscriptions=store, output=tmp_path / "out", hosts=2)
    running.process_all_available()
    make_log(log, EVENTS * 9)
    with pytest.raises(LavantError, match=r"the log .* is not the one read before"):
        running.wait(9)
    running = start(shared_spark, log=log, subscriptions=store, output=tmp_path / "next", hosts=2)
    running.process_all_available()
    make_store(tmp_path / "subscriptions", "volume < 0")
    append(tmp_path / "log", EVENTS)
    with pytest.raises(LavantError, match=r"the subscriptions in .* are not those read before"):
        running.wait()


def test_notifications_are_of_one_store(shared_spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "subscriptions", "volume >= 0")
    make_log(tmp_path / "log", rows(10))
    run(shared_spark, tmp_path)
    make_store(tmp_path / "subscriptions", "volume < 0")
    append(tmp_path / "log", rows(10))
    with pytest.raises(IdentityMismatch, match="notifications of another store"):
        run(shared_spark, tmp_path)


def test_a_placement_is_of_one_store(tmp_path: Path) -> None:
    store = make_store(tmp_path / "subscriptions", "volume >= 0", slices=4)
    other = msgspec.structs.replace(SliceAssignment.even(4, 2), store="another")
    with pytest.raises(IdentityMismatch, match="the placement is for the store with identity another"):
        other.check(4, SliceReader(store).identity)
    with pytest.raises(IdentityMismatch, match="the placement does not fit a store of 3 slices"):
        SliceAssignment.even(4, 2).check(3, SliceReader(store).identity)


def test_a_manager_does_not_go_on_with_the_placement_of_another_store(
    shared_spark: SparkSession, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "subscriptions", "volume >= 0", slices=2)
    hosts = ((HostId("host-0000"), (SliceId("M:0"), SliceId("M:1"))),)
    enforcer = base64.b64encode(Enforcer(PlacementConfig()).snapshot()).decode()
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "manager.json").write_bytes(msgspec.json.encode(ManagerState(hosts, enforcer, "another")))
    with pytest.raises(IdentityMismatch, match="the placement"):
        ClusterManager(shared_spark, subscriptions=store, directory=tmp_path / "control", config=PlacementConfig())
