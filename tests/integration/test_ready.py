"""Ready means ready: a server whose kernels are not compiled yet says so, and compiles nothing once it serves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from tests.integration.server_processes import free_port
from tests.integration.serving import LAVANT, WAIT_S_MAX

from lavant import connect
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.errors import NotReady
from lavant.core.publications.attributes import AttributeValue

COLD_S_MAX = 600
"""Kernels are compiled from nothing, on a machine that may have other things to do."""
CODE = """
import sys
from numba.core import event
from lavant.cli import app

class Late(event.Listener):
    def on_start(self, event):
        print("compiled:", event.data["dispatcher"], file=sys.stderr, flush=True)
    def on_end(self, event):
        pass

class Watched:
    def write(self, text):
        sys.__stdout__.write(text)
        if "listening" in text:
            event.register("numba:compile", Late())
    def flush(self):
        sys.__stdout__.flush()

sys.stdout = Watched()
app()
"""
"""A server that says what it compiles after it said that it listens."""


class Server:
    def __init__(self, cache: Path, *options: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-c", CODE, "serve", "--memory", "--port", str(self.port), *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LAVANT_CACHE_DIR": str(cache)},
        )
        self.url = f"lavant://127.0.0.1:{self.port}"
        self.errors: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self.errors.extend, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_S_MAX) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_until_it_listens(self) -> None:
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                self.get("/healthz")
            except urllib.error.URLError:
                assert time.monotonic() < deadline_s
                assert self.process.poll() is None, self.errors
                time.sleep(0.05)
            else:
                return

    def wait_until_ready(self) -> list[str]:
        """What /readyz said until then."""
        said: list[str] = []
        deadline_s = time.monotonic() + COLD_S_MAX
        while True:
            status, text = self.get("/readyz")
            if status == 200:
                return said
            said.append(text)
            status, text = self.get("/healthz")
            assert status == 200
            assert text.startswith("the server is starting: ") or text == "ok\n"  # it is ready since
            assert time.monotonic() < deadline_s, said[-1]
            time.sleep(0.1)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S_MAX)
        self._reader.join(WAIT_S_MAX)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(WAIT_S_MAX)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def servers(cache: Path) -> Iterator[list[Server]]:
    """Two that start at the same time, with nothing compiled."""
    with Server(cache) as first, Server(cache) as second:
        yield [first, second]


def test_a_server_with_nothing_compiled(servers: list[Server], cache: Path) -> None:
    """One test of all that is seen of a cold start, which is expensive."""
    first, second = servers
    published = subprocess.Popen(
        [str(LAVANT), "pub", "a=1", "--url", first.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for server in servers:
        server.wait_until_it_listens()

    # While it compiles, it lives, and is not ready.
    status, said = first.get("/readyz")
    assert (status, said.startswith("the server is starting: ")) == (503, True), said
    status, said = first.get("/subscriptions")
    assert (status, json.loads(said)["error"]["code"]) == (503, "NotReady")
    with pytest.raises(NotReady, match="the server is starting"):
        connect(first.url, retries=NO_RETRIES)

    # Clients wait for it, be it for longer than for one that is gone.
    with connect(second.url) as client:
        assert second.get("/readyz") == (200, "ok\n")
        client.publish({"a": 1})
    first.wait_until_ready()
    output, errors = published.communicate(timeout=WAIT_S_MAX)
    assert (published.returncode, output.count("\n")) == (0, 1), errors

    # Once it serves, nothing is compiled.
    for server, attributes in zip(servers, (1, 7), strict=True):
        serve_all_kinds(server.url, attributes)
        assert server.stop() == 0
        assert [line for line in server.errors if line.startswith("compiled:")] == []

    # One compiled, and told how far it was; the other waited. What is promised is what there was.
    lines = [line for server in servers for line in server.errors]
    progress = [re.fullmatch(r"lavant: compiling kernels (\d+)/(\d+), once for .*\n", line) for line in lines]
    assert len({line for line in lines if "waiting for another process" in line}) <= 1
    assert sum(each is not None for each in progress) >= 1
    kept = [path for path in (cache / "kernels").iterdir() if path.suffix == ".kernel"]
    assert {int(each[2]) for each in progress if each is not None} == {len(kept)}


def serve_all_kinds(url: str, attributes: int) -> None:
    """Plain and encrypted; patterns, lists, ranges; few and many; singly and together; coming and going."""
    with connect(url) as client:
        filters = [f"a{i % 5} between {i} and {i + 50} and b > {i}" for i in range(80)]
        filters += [f"k{i} = {i} and a0 > 1" for i in range(20)]
        filters += ["s like '%x'", "s like 'x%' and a0 < 5", "s in ('x', 'y')", "not (a0 = 1)", "s = 'x' or a1 = 2"]
        made = [client.subscribe(text, name=f"s{number}") for number, text in enumerate(filters)]
        rows: list[dict[str, AttributeValue]] = [
            {"s": "xx", "b": 7.5, **{f"a{i}": n for i in range(5)}} for n in range(100)
        ]
        client.publish(rows[0])
        client.publish_many(rows)
        for each in made[::2]:
            client.unsubscribe(each.name)
        client.publish_many(rows)
        time.sleep(1)  # indexes are joined when nothing has changed for a while
        client.publish(rows[1])
    schema = Schema.of(*(NumericAttribute(f"x{i}", 0, 100, 1) for i in range(attributes)))
    with connect(url, encryption=Key.generate(schema)) as client:
        client.subscribe("x0 > 5", name="encrypted")
        client.publish(dict.fromkeys(schema.names, 7))
        client.publish_many([dict.fromkeys(schema.names, n) for n in range(50)])


def test_a_server_that_finds_its_kernels_compiles_nothing(servers: list[Server], cache: Path) -> None:
    assert all(each.process.poll() is not None for each in servers), "the test before has left what it compiled"
    for path in (cache, *cache.rglob("*")):  # as in an image: they can be read, and nothing can be written
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with Server(cache) as server:
            server.wait_until_it_listens()
            server.wait_until_ready()
            serve_all_kinds(server.url, 16)
            assert server.stop() == 0
            assert [line for line in server.errors if "compil" in line] == []
    finally:
        for path in (cache, *cache.rglob("*")):
            path.chmod(0o700)


def test_a_server_that_is_stopped_while_it_compiles_stops(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.wait_until_it_listens()
        while "compiling kernels" not in server.get("/readyz")[1]:
            time.sleep(0.05)
        assert server.stop() == 0
        assert not any("Traceback" in line for line in server.errors), server.errors
