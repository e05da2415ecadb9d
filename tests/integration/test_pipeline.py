"""Access, match and exit on real Spark in local mode: what arrives is what the oracle says, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.integration.processes import python_workers
from tests.integration.workload import EncryptedWorld, append, expected, filters, notified, rows

from lavant.broker.slices import SliceStore
from lavant.broker.storage.log import LogWriter
from lavant.core.errors import FailedStream, InvalidValue, MissingComponent
from lavant.pipeline.cluster.assignment import ANYWHERE
from lavant.pipeline.internals.checkpoints import checkpoint_uri
from lavant.pipeline.internals.stages import PlacedTask, run_stages, run_tasks
from lavant.pipeline.operators.parts import part_name
from lavant.pipeline.session import LEAN_PLANS, lean_plans
from lavant.pipeline.stream.driver import StreamResult, start, stream
from lavant.pipeline.stream.records import encrypted_records
from lavant.pipeline.stream.sinks import BatchManifest, Notifications, read_manifests, read_notifications
from lavant.pipeline.stream.small_batches import SMALL_ROWS_MAX
from lavant.pipeline.tables import match
from lavant.simulation.workloads.synthetic import EncryptedWorkload


@pytest.fixture
def spark(shared_spark: SparkSession) -> SparkSession:
    return shared_spark


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    made = SliceStore.create(tmp_path / "subscriptions", slices=4)
    made.add(range(300), filters(300))
    return made


TEXTS = dict(enumerate(filters(300)))


BOTH_WAYS = pytest.mark.parametrize("small_rows_max", [0, SMALL_ROWS_MAX], ids=["stages", "small"])


def run_to_end(
    spark: SparkSession, directory: Path, end: int, small_rows_max: int = SMALL_ROWS_MAX, **options: str
) -> None:
    running = start(
        spark,
        log=directory / "log",
        subscriptions=directory / "subscriptions",
        output=directory,
        hosts=2,
        available_now=True,
        small_rows_max=small_rows_max,
        options=options,
    )
    running.wait(end)


def test_a_table_is_matched_against_a_store(spark: SparkSession, store: SliceStore) -> None:
    publications = rows(500)
    table = spark.createDataFrame(
        [(r["@id"], r["symbol"], r["volume"], r.get("price")) for r in publications],
        "event string, symbol string, volume int, price double",
    )
    matched = match(table, store.directory).collect()
    assert {row.event: sorted(row.subscriptions) for row in matched} == expected(TEXTS, publications)
    assert all(row.rejected is None for row in matched)


def test_rows_that_are_no_publications_come_out_with_the_reason(spark: SparkSession, store: SliceStore) -> None:
    lines = [("good", "IBM", 101, 1.0), ("nan", "IBM", 101, float("nan")), ("long", "x" * 70_000, 1, 1.0)]
    table = spark.createDataFrame(lines, "event string, symbol string, volume int, price double")
    matched = {row.event: row for row in match(table, store.directory).collect()}
    assert matched["good"].subscriptions
    assert "at most 65536 are allowed" in matched["long"].rejected
    assert "'price' is nan" in matched["nan"].rejected


def test_a_streaming_table_is_matched(spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    publications = rows(300)
    columns = {name: [row.get(name) for row in publications] for name in ("@id", "symbol", "volume", "price")}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"event": columns.pop("@id"), **columns}), tmp_path / "in" / "a.parquet")
    schema = "event string, symbol string, volume bigint, price double"
    table = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    query = (
        match(table, store.directory)
        .writeStream.format("memory")
        .queryName("matched")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    matched = spark.sql("select * from matched").collect()
    assert {row.event: sorted(row.subscriptions) for row in matched} == expected(TEXTS, publications)


def test_a_log_is_matched_in_batches_and_each_batch_sees_one_version(
    spark: SparkSession, store: SliceStore, tmp_path: Path
) -> None:
    first, second = rows(700, seed=3), [{**row, "@id": f"later {row['@id']}"} for row in rows(700, seed=4)]
    append(tmp_path / "log", first)
    run_to_end(spark, tmp_path, 700, rowsMax="200")
    more = filters(50, seed=9)
    store.add(range(1000, 1050), more)
    store.remove(range(0, 100))
    append(tmp_path / "log", second)
    run_to_end(spark, tmp_path, 1400, rowsMax="200")
    changed = {id: text for id, text in TEXTS.items() if id >= 100} | dict(zip(range(1000, 1050), more, strict=True))
    assert notified(tmp_path / "notifications") == expected(TEXTS, first) | expected(changed, second)


@BOTH_WAYS
def test_a_stream_follows_another_number_of_slices(
    spark: SparkSession, store: SliceStore, tmp_path: Path, small_rows_max: int
) -> None:
    parts = [[{**row, "@id": f"{number} {row['@id']}"} for row in rows(300, seed=number)] for number in range(3)]
    append(tmp_path / "log", parts[0])
    running = start(
        spark,
        log=tmp_path / "log",
        subscriptions=store.directory,
        output=tmp_path,
        hosts=2,
        small_rows_max=small_rows_max,
        options={"rowsMax": "150"},
    )
    try:
        for part, slices in ((parts[1], 7), (parts[2], 2)):
            running.process_all_available()
            store.reslice(slices)
            append(tmp_path / "log", part)
        running.process_all_available()
    finally:
        running.stop()
    assert notified(tmp_path / "notifications") == expected(TEXTS, [row for part in parts for row in part])


def test_batches_of_every_size_take_their_way(spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    sizes = (1, 299, 301)  # one publication for two hosts, and both sides of the limit
    publications = rows(sum(sizes))
    for number, size in enumerate(sizes):
        before = sum(sizes[:number])
        append(tmp_path / "log", publications[before : before + size])
        run_to_end(spark, tmp_path, before + size, 300)
    assert notified(tmp_path / "notifications") == expected(TEXTS, publications)
    parts = [len(each.parts) for each in read_manifests(tmp_path / "notifications")]
    assert parts[1:] == [1, 2], "a small batch has one part, of the driver; a large one has one of each host"


@BOTH_WAYS
def test_encrypted_publications_reach_whom_they_must(spark: SparkSession, tmp_path: Path, small_rows_max: int) -> None:
    world = EncryptedWorld(tmp_path, subscriptions=5000, publications=1200)
    run_to_end(spark, tmp_path, 1200, small_rows_max, rowsMax="500")
    assert notified(tmp_path / "notifications") == world.expected()


def test_publications_of_another_schema_are_refused_and_the_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    world = EncryptedWorld(tmp_path, subscriptions=500, publications=100)
    other = EncryptedWorkload(attributes=3, subscriptions=1).publications(2)
    with LogWriter(tmp_path / "log", durable=False) as log:
        log.append(encrypted_records(other, ["odd 1", "odd 2"]))
    run_to_end(spark, tmp_path, 102)
    table = read_notifications(tmp_path / "notifications")
    refused = table.filter(pc.is_valid(table.column("rejected")))
    assert refused.column("key").to_pylist() == [100, 101]
    assert "dimensions" in refused.column("rejected")[0].as_py()
    found = notified(tmp_path / "notifications")
    assert {id: ids for id, ids in found.items() if id} == world.expected()


def test_a_batch_counts_once(tmp_path: Path) -> None:
    manifest = BatchManifest(batch=0, start=0, end=7, rows=0, matches=0, parts=(), log="log", store="store")
    first, second = Notifications(tmp_path), Notifications(tmp_path)
    first.commit(manifest)
    with pytest.raises(FailedStream, match=r"batch 0 of .* was committed by another driver"):
        second.commit(manifest)
    with pytest.raises(FailedStream, match="batch 1 starts at offset 900, but the last one ended at 7"):
        first.commit(msgspec.structs.replace(manifest, batch=1, start=900, end=901))


def test_what_was_not_committed_is_removed_once_nobody_can_commit_it(tmp_path: Path) -> None:
    manifest = BatchManifest(batch=0, start=0, end=7, rows=0, matches=0, parts=(), log="log", store="store")
    first = Notifications(tmp_path)
    first.commit(manifest)
    second = Notifications(tmp_path)  # while the first still runs
    assert (second.next_batch, second.next_offset) == (1, 7)
    names = [part_name(number, run, 0) for number in (0, 1, 2) for run in (first.run, second.run)]
    for name in names:
        (tmp_path / name).touch()
    first.commit(msgspec.structs.replace(manifest, batch=1, start=7, end=9))
    with pytest.raises(FailedStream, match="committed by another driver"):
        second.commit(msgspec.structs.replace(manifest, batch=1, start=7, end=9))
    assert sorted(path.name for path in tmp_path.glob("part-*")) == sorted(names)
    third = Notifications(tmp_path)
    third.commit(msgspec.structs.replace(manifest, batch=2, start=9, end=11))
    left = {path.name for path in tmp_path.glob("part-*")}
    assert left == {name for name in names if not name.startswith("part-0000000002")}
    (tmp_path / part_name(3, third.run, 0)).touch()
    third.commit(msgspec.structs.replace(manifest, batch=3, start=11, end=12))
    assert (tmp_path / part_name(3, third.run, 0)).exists()


@BOTH_WAYS
def test_killed_python_workers_lose_nothing_and_repeat_nothing(
    spark: SparkSession, store: SliceStore, tmp_path: Path, small_rows_max: int
) -> None:
    publications = rows(2400, seed=5)
    append(tmp_path / "log", publications)
    killed: list[int] = []
    stop = threading.Event()

    def kill() -> None:
        while not stop.wait(0.5) and len(killed) < 3:
            workers = python_workers()
            if workers and any((tmp_path / "notifications").glob("_manifests/*.json")):
                killed.append(workers[len(killed) % len(workers)])
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    failures = 0
    try:
        for _ in range(20):
            try:
                run_to_end(spark, tmp_path, 2400, small_rows_max, rowsMax="100")
                break
            except FailedStream:
                failures += 1
    finally:
        stop.set()
        thread.join()
    assert killed
    assert notified(tmp_path / "notifications") == expected(TEXTS, publications)


def test_files_in_files_out_and_the_poison_aside(spark: SparkSession, tmp_path: Path) -> None:
    publications = rows(200)
    publications[7] |= {"volume": "a lot"}  # of two kinds in one batch
    poison = [b'{"symbol": ["IBM"]}', b"not json", b'{"volume": 1e999}', b'{"s": "' + b"x" * 1_000_000 + b'"}']
    lines = [json.dumps(row).encode() for row in publications] + poison
    (tmp_path / "quotes.jsonl").write_bytes(b"\n".join(lines))
    subscriptions = tmp_path / "subscriptions.jsonl"
    subscriptions.write_text("".join(json.dumps({"id": id, "filter": text}) + "\n" for id, text in TEXTS.items()))
    seen: list[tuple[int, int]] = []
    result = stream(
        spark,
        subscriptions=subscriptions,
        publications=tmp_path / "quotes.jsonl",
        output=tmp_path / "out",
        slices=4,
        hosts=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert notified(tmp_path / "out" / "notifications") == expected(TEXTS, publications)
    assert (result.publications, result.subscriptions, result.rejected) == (200, 300, 4)
    assert seen[-1] == (200, 200)
    refused = [json.loads(line) for line in (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()]
    assert [line["row"] for line in refused] == [200, 201, 202, 203]
    assert "type list" in refused[0]["reason"]
    assert "at most 65536 are allowed" in refused[3]["reason"]


def test_an_output_directory_is_of_one_input(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "volume > 1"}\n')
    for name in ("p.jsonl", "q.jsonl"):
        (tmp_path / name).write_text('{"volume": 5}\n')

    def run(name: str) -> int:
        subscriptions, output = tmp_path / "s.jsonl", tmp_path / "out"
        return stream(spark, subscriptions=subscriptions, publications=tmp_path / name, output=output).publications

    assert run("p.jsonl") == run("p.jsonl") == 1
    with pytest.raises(InvalidValue, match="holds the results of other inputs"):
        run("q.jsonl")


def test_a_command_whose_filter_was_wrong_runs_once_it_is_mended(spark: SparkSession, tmp_path: Path) -> None:
    subscriptions, publications, output = tmp_path / "s.jsonl", tmp_path / "p.jsonl", tmp_path / "out"
    publications.write_text('{"volume": 2}\n')
    subscriptions.write_text('{"id": 1, "filter": "volume >"}\n')
    with pytest.raises(InvalidValue, match="subscription 1: expected a value"):
        stream(spark, subscriptions=subscriptions, publications=publications, output=output)
    subscriptions.write_text('{"id": 1, "filter": "volume > 1"}\n')
    assert stream(spark, subscriptions=subscriptions, publications=publications, output=output).subscriptions == 1
    assert read_notifications(tmp_path / "out" / "notifications").num_rows == 1


def test_a_log_of_which_everything_is_refused_is_not_a_success(
    spark: SparkSession, store: SliceStore, tmp_path: Path
) -> None:
    with LogWriter(tmp_path / "log", durable=False) as log:
        log.append(pa.record_batch({"price": [float("nan"), float("inf"), float("nan")]}))

    def run() -> StreamResult:
        return stream(spark, subscriptions=store.directory, publications=tmp_path / "log", output=tmp_path / "out")

    result = run()
    assert (result.publications, result.rejected, result.matched_none) == (3, 3, True)
    assert [count for reason, count in result.reasons.items() if "'price' is nan; leave" in reason] == [2]
    append(tmp_path / "log", rows(5))
    assert not run().matched_none


def test_the_command_says_in_one_line_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": 1, "filter": "price > 5"}\n')
    (tmp_path / "p.jsonl").write_text('{"price": 7}\n')

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from lavant.cli import app; app()", "stream", *arguments]
        files = ["--subscriptions", "s.jsonl", "--input", "p.jsonl", "--output", "out"]
        return subprocess.run(
            [*command, *files],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
            check=False,
        )

    unreachable = run("--master", "spark://127.0.0.1:9")
    assert unreachable.returncode == MissingComponent.exit_code
    assert (
        unreachable.stderr.strip().splitlines()[-1].startswith("lavant: the Spark master spark://127.0.0.1:9 does not")
    )
    without_java = run(JAVA_HOME=str(tmp_path))
    assert without_java.returncode == MissingComponent.exit_code
    assert "lavant: Spark needs Java 17 or newer" in without_java.stderr
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    too_old = run(JAVA_HOME=str(tmp_path))
    assert "java is Java 11; install a newer one" in too_old.stderr


def test_times_are_not_asserted_but_the_stream_ends(spark: SparkSession, store: SliceStore, tmp_path: Path) -> None:
    """A log that is empty ends at once, and one that grows while it is read stops at what was there."""
    append(tmp_path / "log", rows(10))
    began = time.monotonic()
    run_to_end(spark, tmp_path, 10)
    assert time.monotonic() > began
    assert len(notified(tmp_path / "notifications")) == len(expected(TEXTS, rows(10)))


def test_a_task_for_each_host_answers_in_their_order_wherever_it_ran(spark: SparkSession) -> None:
    gone = "executor_127.0.0.1_999"
    tasks = [
        PlacedTask(location, bytes([number])) for number, location in enumerate((ANYWHERE, gone, ANYWHERE, gone, gone))
    ]
    context = spark.sparkContext
    assert run_tasks(context, tasks, lambda data: bytes([data[0] * 2]), "test") == [b"\0", b"\2", b"\4", b"\6", b"\10"]
    found = run_stages(
        context,
        tasks,
        lambda data: [data * 2, data * 3, data * 4],
        tasks[:3],
        lambda task, parts: bytes([*task, *sorted(b"".join(parts))]),
        ("first", "second"),
    )
    assert [each[0] for each in found] == [0, 1, 2]
    tracker = context.statusTracker()
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup()))
    assert job is not None
    stages = [tracker.getStageInfo(stage) for stage in job.stageIds]
    assert sorted(stage.name for stage in stages if stage is not None) == ["first", "second"]


@BOTH_WAYS
def test_the_query_shows_what_it_carries(
    spark: SparkSession, store: SliceStore, tmp_path: Path, small_rows_max: int
) -> None:
    append(tmp_path / "log", rows(500))
    running = start(
        spark,
        log=tmp_path / "log",
        subscriptions=store.directory,
        output=tmp_path,
        hosts=2,
        available_now=True,
        small_rows_max=small_rows_max,
        options={"rowsMax": "200"},
    )
    running.wait()
    progress = running.query.recentProgress
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [200, 200, 100]
    assert [each["observedMetrics"]["lavant_access"]["publications"] for each in progress][:3] == [200, 200, 100]
    assert progress[0]["name"] == f"lavant {tmp_path / 'notifications'}"
    assert running.position == 500
    table = spark.read.parquet(str(tmp_path / "notifications"))
    assert dict(table.dtypes)["subscriptions"] == "array<bigint>"
    found = [row.asDict() for row in table.orderBy("key").collect()]
    assert found == read_notifications(tmp_path / "notifications").select(table.columns).to_pylist()


def test_a_stream_leaves_the_settings_of_its_session_alone(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ui.explainMode", "cost")
    before = spark.conf.getAll
    try:
        with lean_plans(spark):
            assert {key: spark.conf.get(key) for key in LEAN_PLANS} == LEAN_PLANS
        assert spark.conf.getAll == before
    finally:
        spark.conf.unset("spark.sql.ui.explainMode")


def test_a_file_of_a_checkpoint_has_the_permissions_that_hadoop_gives_it(spark: SparkSession, tmp_path: Path) -> None:
    uri = checkpoint_uri(spark.sparkContext, tmp_path / "a b")
    assert uri.startswith("lavant-local:")
    spark.range(3).coalesce(1).write.csv(f"{uri}/here")
    spark.range(3).coalesce(1).write.csv(f"file://{tmp_path}/a b/there")
    here, there = (next((tmp_path / "a b" / name).glob("*.csv")) for name in ("here", "there"))
    assert here.read_text() == there.read_text() == "0\n1\n2\n"
    assert here.stat().st_mode == there.stat().st_mode


def test_a_checkpoint_is_at_a_plain_path_where_java_refuses_its_file_system(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lavant.pipeline.internals.checkpoints.SOURCE", "no Java")
    assert checkpoint_uri(spark.sparkContext, tmp_path) == f"file://{tmp_path}"
