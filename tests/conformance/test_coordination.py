"""What every coordination store promises: files, and a real ZooKeeper server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.server_processes import free_port
from tests.integration.zookeeper import ZooKeeperServer, require_zookeeper

from lavant.core.errors import LimitExceeded, MissingComponent
from lavant.pipeline.cluster import coordination
from lavant.pipeline.cluster.coordination import VALUE_BYTES_MAX, Coordination, FileCoordination, ZooKeeperCoordination

BINARY = bytes(range(256)) * 3


class Case(NamedTuple):
    """`open` gives a store, each time a new one, on what the earlier ones left."""

    open: Callable[[], Coordination]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    require_zookeeper()
    running = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    running.start()
    yield running
    running.kill()


@pytest.fixture
def clients() -> Iterator[list[ZooKeeperCoordination]]:
    opened: list[ZooKeeperCoordination] = []
    yield opened
    for client in opened:
        client.close()


@pytest.fixture(params=["files", pytest.param("zookeeper", marks=pytest.mark.external)])
def case(request: pytest.FixtureRequest, tmp_path: Path, clients: list[ZooKeeperCoordination]) -> Case:
    if request.param == "files":
        return Case(lambda: FileCoordination(tmp_path / "control" / "state"))
    server: ZooKeeperServer = request.getfixturevalue("server")
    root = f"/lavant/{tmp_path.name}"  # of two levels, and each test its own
    return Case(lambda: connect(server, clients, root))


def connect(
    server: ZooKeeperServer, clients: list[ZooKeeperCoordination], root: str = "/lavant"
) -> ZooKeeperCoordination:
    clients.append(ZooKeeperCoordination(server.hosts, root))
    return clients[-1]


# ---- every store ----------------------------------------------------------------------------------------------------


def test_what_was_never_put_is_none(case: Case) -> None:
    assert case.open().get("manager.json") is None


def test_what_was_put_comes_back(case: Case) -> None:
    store = case.open()
    store.put("manager.json", b"{}")
    assert store.get("manager.json") == b"{}"


def test_a_value_is_replaced_as_a_whole(case: Case) -> None:
    store = case.open()
    for value in (b"a long value", b"short", b"", b"and long again"):
        store.put("state", value)
        assert store.get("state") == value


def test_an_empty_value_is_not_the_same_as_none(case: Case) -> None:
    store = case.open()
    store.put("state", b"")
    assert store.get("state") == b""


def test_values_are_bytes_of_any_kind(case: Case) -> None:
    store = case.open()
    store.put("state", BINARY)
    assert store.get("state") == BINARY


def test_names_do_not_touch_each_other(case: Case) -> None:
    store = case.open()
    store.put("manager.json", b"1")
    store.put("manager", b"2")
    assert (store.get("manager.json"), store.get("manager"), store.get("json")) == (b"1", b"2", None)


def test_it_survives_reopening(case: Case) -> None:
    case.open().put("state", BINARY)
    assert case.open().get("state") == BINARY


def test_one_sees_what_another_put(case: Case) -> None:
    writer, reader = case.open(), case.open()
    for value in (b"1", b"2"):
        writer.put("state", value)
        assert reader.get("state") == value


def test_the_largest_value_fits_and_one_byte_more_is_refused_and_changes_nothing(case: Case) -> None:
    store = case.open()
    largest = b"x" * VALUE_BYTES_MAX
    store.put("state", largest)
    with pytest.raises(LimitExceeded, match=f"'state' has {VALUE_BYTES_MAX + 1} bytes, at most {VALUE_BYTES_MAX}"):
        store.put("state", largest + b"x")
    assert case.open().get("state") == largest


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_crash_while_a_file_is_written_leaves_the_value_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileCoordination(tmp_path)
    store.put("state", b"before")

    def crash(_: int) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="no space"):
            store.put("state", b"after")
    assert FileCoordination(tmp_path).get("state") == b"before"
    store.put("state", b"later")
    assert FileCoordination(tmp_path).get("state") == b"later"


# ---- ZooKeeper ------------------------------------------------------------------------------------------------------


@pytest.mark.external
def test_values_survive_the_kill_and_restart_of_the_server(
    server: ZooKeeperServer, clients: list[ZooKeeperCoordination]
) -> None:
    before = connect(server, clients, "/killed")
    for number in range(20):
        before.put("state", b"%d" % number)
    server.kill()
    server.start()
    assert connect(server, clients, "/killed").get("state") == b"19"
    assert before.get("state") == b"19"  # and the old client finds the server again
    before.put("state", b"20")
    assert connect(server, clients, "/killed").get("state") == b"20"


@pytest.mark.external
def test_a_server_that_goes_away_is_a_missing_component_and_not_a_client_that_hangs(
    server: ZooKeeperServer, clients: list[ZooKeeperCoordination], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(server, clients, "/gone")
    client.put("state", b"1")
    server.kill()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(coordination, "TIMEOUT_S", 1.0)
            with pytest.raises(MissingComponent, match=f"^ZooKeeper at {server.hosts} does not answer within 1 s$"):
                client.get("state")
            with pytest.raises(MissingComponent, match="does not answer"):
                client.put("state", b"2")
    finally:
        server.start()
    client.put("state", b"3")
    assert client.get("state") == b"3"


def test_a_server_that_was_never_there_is_a_missing_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "TIMEOUT_S", 1.0)
    hosts = f"127.0.0.1:{free_port()}"
    with pytest.raises(MissingComponent) as raised:
        ZooKeeperCoordination(hosts)
    assert str(raised.value) == f"ZooKeeper at {hosts} does not answer within 1 s"


def test_nothing_but_the_error_is_printed_of_a_server_that_is_not_there() -> None:
    program = (
        "from lavant.core.errors import MissingComponent\n"
        "from lavant.pipeline.cluster import coordination\n"
        "coordination.TIMEOUT_S = 1.0\n"
        "try:\n"
        f"    coordination.ZooKeeperCoordination('127.0.0.1:{free_port()}')\n"
        "except MissingComponent as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_without_kazoo_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(MissingComponent, match=r"install 'lavant\[zookeeper\]'"):
        ZooKeeperCoordination("127.0.0.1:1")


def test_in_continuous_integration_a_missing_zookeeper_is_a_failure_and_elsewhere_a_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.zookeeper.JARS", tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="ZooKeeper is not installed"):
        require_zookeeper()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="ZooKeeper is not installed"):
        require_zookeeper()
