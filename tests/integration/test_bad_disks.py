"""A real server on a disk that is slow, fails or is full: what the page "when something is wrong" says of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.components import do_without
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.small_disks import small_file_system

from lavant import Queue, Retries, connect
from lavant.cli.reports import doctor
from lavant.core.errors import ConnectionLost, StorageFailed, StorageFull

LIBRARY = Path(__file__).with_name("faulty_disk.c")
SLOW_MS = 600
"""Of a write, and of a sync."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        do_without("there is no C compiler for a disk that fails")
    built = tmp_path_factory.mktemp("library") / "faulty_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(LIBRARY), "-ldl"], check=True)
    return built


class OnFaultyDisk(Served):
    """The file `fault` says what is wrong with its disk; without it, nothing is."""

    def __init__(self, data: Path, library: Path) -> None:
        self.library, self.fault = library, data.with_name("fault")
        super().__init__(data)

    def _popen(self, command: list[str]) -> subprocess.Popen[str]:
        assert self.data is not None
        faults = {"LAVANT_FAULTY_DISK": str(self.data), "LAVANT_DISK_FAULT": str(self.fault)}
        environment = os.environ | faults | {"LD_PRELOAD": str(self.library)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def doctor_on_disk(server: Served) -> tuple[str, str]:
    """The verdict and the words of `lavant doctor` on the disk of a server."""
    found = next(each for each in doctor.server(server.url) if each.what == "server's disk")
    return found.verdict.value, found.said


def send_until_refused(queue: Queue, confirmed: list[int]) -> None:
    while True:
        confirmed.append(queue.send(b"x" * 100_000))


def send_when_there_is_room(queue: Queue, body: bytes) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < deadline_s:
        with suppress(StorageFull):
            queue.send(body)
            return
        time.sleep(0.05)
    pytest.fail("the server did not go on")


def bodies(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.peek(count=100)]


def test_a_slow_disk_is_told_and_a_failing_one_stops_the_server_with_all_that_was_confirmed(
    tmp_path: Path, library: Path
) -> None:
    data = tmp_path / "data"
    with OnFaultyDisk(data, library) as server, connect(server.url, retries=Retries(within_s=0)) as client:
        queue = client.create_queue("q")
        queue.send(b"quick")
        server.fault.write_text(str(SLOW_MS))
        queue.send(b"slow")
        commits = server.fresh_metric("lavant_commit_seconds_count")
        assert server.metric('lavant_commit_seconds_bucket{le="1.0"}') < commits
        verdict, said = doctor_on_disk(server)
        assert verdict == "note"
        assert "ms on average" in said
        server.fault.write_text("eio")
        with pytest.raises(ConnectionLost):
            queue.send(b"unconfirmed")
        assert server.process.wait(WAIT_S_MAX) == StorageFailed.exit_code
        log = server.errors()
    assert "WARNING the disk is slow: a commit to the journal took " in log
    assert log.count("the disk is slow") == 1
    assert "ERROR the server stops: segment-0000000001 could not be written" in log
    assert "everything confirmed is safe" in log
    server.fault.unlink()
    with Served(data) as again, connect(again.url) as client:
        assert set(bodies(client.queue("q"))) - {b"unconfirmed"} == {b"quick", b"slow"}
        client.queue("q").send(b"on it goes")


def test_a_full_disk_refuses_only_what_is_new_and_the_server_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "disk", 24 << 20) as disk:
        with Served(disk.directory) as server, connect(server.url, retries=Retries(within_s=0)) as client:
            queue = client.create_queue("q")
            disk.fill()
            confirmed: list[int] = []
            with pytest.raises(StorageFull, match="the disk of the server is full: nothing new is accepted"):
                send_until_refused(queue, confirmed)
            queue.acknowledge(*queue.receive())
            server.wait_for_metric("lavant_storage_full", 1)
            assert doctor_on_disk(server) == ("bad", "full: nothing new is accepted")
            assert server.http("/readyz").status == 200, "consumers are served"
            disk.free()
            send_when_there_is_room(queue, b"after")
            server.process.kill()
            log = server.errors()
        assert "WARNING nothing new is accepted until there is disk space" in log
        assert "WARNING there is disk space again" in log
        with Served(disk.directory) as server, connect(server.url) as client:
            found = bodies(client.queue("q"))
            assert (len(found), found[-1]) == (len(confirmed), b"after"), (
                "all that was confirmed, less one, and the last"
            )
            assert server.stop() == 0
