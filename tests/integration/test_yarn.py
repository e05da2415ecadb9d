"""On YARN, with an archive for executors: streams whose storage is on HDFS, and the engine of a server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.integration.frames import FrameClient
from tests.integration.hadoop import Hadoop, hadoop_cluster
from tests.integration.processes import descendants
from tests.integration.serving import Served
from tests.integration.workload import expected, filters, notified, rows

from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Subscribed
from lavant.broker.storage.objects import open_storage
from lavant.pipeline.cluster.standalone import SPARK_HOME
from lavant.service.observability.metrics import FRESH_S_MAX

pytestmark = [pytest.mark.soak, pytest.mark.external]

PATIENCE_S = 600.0
ON_YARN = (
    "--master", "yarn", "--conf", "spark.executor.memory=600m", "--conf", "spark.executor.instances=2",
    "--conf", f"spark.yarn.jars=local:{SPARK_HOME}/jars/*",
)  # fmt: skip


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    with hadoop_cluster(tmp_path_factory.mktemp("hadoop")) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(running.configuration))
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "lavant.tar.gz"
    subprocess.run([lavant(), "spark", "pack", str(path)], check=True)
    return path


def lavant() -> str:
    return str(Path(sys.executable).parent / "lavant")


def json_lines(values: list[dict[str, object]]) -> list[bytes]:
    return [msgspec.json.encode(value) + b"\n" for value in values]


def test_a_stream_reads_and_writes_hdfs_through_the_kill_of_an_executor(
    hadoop: Hadoop, archive: Path, tmp_path: Path
) -> None:
    texts = dict(enumerate(filters(500), 1))
    publications = rows(3000)
    given = open_storage(hadoop.uri("given"))
    given.write("subscriptions.jsonl", json_lines([{"id": id, "filter": text} for id, text in texts.items()]))
    given.write("publications.jsonl", json_lines(publications))
    arguments = (
        "--subscriptions", hadoop.uri("given/subscriptions.jsonl"), "--input", hadoop.uri("given/publications.jsonl"),
        "--output", hadoop.uri("out"), "--archive", str(archive),
    )  # fmt: skip
    with (tmp_path / "stream.log").open("wb") as log:
        stream = subprocess.Popen([lavant(), "stream", *arguments, *ON_YARN], cwd=tmp_path, stdout=log, stderr=log)
    out = open_storage(hadoop.uri("out"))
    try:
        wait_until(lambda: bool(out.names("work/log/") and executors()), stream, tmp_path / "stream.log", hadoop)
        os.kill(executors()[0], signal.SIGKILL)
        wait_until(lambda: stream.poll() is not None, None, tmp_path / "stream.log", hadoop)
    finally:
        stream.kill()
        stream.wait()
    assert stream.returncode == 0, (tmp_path / "stream.log").read_text() + hadoop.container_logs()
    assert notified(hadoop.uri("out/notifications")) == expected(texts, publications)
    assert files_below(tmp_path) == ["stream.log"]


def test_the_engine_of_a_server_runs_on_yarn(hadoop: Hadoop, archive: Path, tmp_path: Path) -> None:
    chance = random.Random(3)
    texts = {number: f"a between {low} and {low + 20}" for number, low in enumerate(range(0, 80, 4))}
    publications = [{"@id": str(number), "a": chance.randrange(100)} for number in range(400)]
    wanted: dict[int, list[str]] = {number: [] for number in texts}
    for id, numbers in expected(texts, publications).items():
        for number in numbers:
            wanted[number].append(id)
    options = ("--engine", "spark", "--hosts-max", "2", "--archive", str(archive), *ON_YARN)
    with Served(tmp_path / "data", *options) as server, FrameClient(server.port) as client:
        for number, text in texts.items():
            assert isinstance(client.ask(Subscribe(text, f"r{number}")), Subscribed)
        answer = client.ask(Publish([msgspec.json.encode({"id": row["@id"], "a": row["a"]}) for row in publications]))
        assert isinstance(answer, Published)
        time.sleep(FRESH_S_MAX)  # the figures may be so old
        deadline = time.monotonic() + PATIENCE_S
        while server.metric("lavant_engine_owed"):
            assert time.monotonic() < deadline, server.http("/readyz").read()
            time.sleep(0.2)
        for number in texts:
            found = [msgspec.json.decode(body)["id"] for body in client.drain(f"r{number}")]
            assert sorted(found) == sorted(wanted[number])
        assert server.stop() == 0


def executors() -> list[int]:
    """Process ids of the executors in the cluster's containers: Java itself, not a shell around it."""
    backends = [process for process in descendants() if "CoarseGrainedExecutorBackend" in process.command]
    parents = {process.parent for process in backends}
    return [process.pid for process in backends if process.pid not in parents]


def wait_until(
    condition: Callable[[], bool], running: subprocess.Popen[bytes] | None, log: Path, hadoop: Hadoop
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert running is None or running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text() + hadoop.container_logs()
        time.sleep(0.1)


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
