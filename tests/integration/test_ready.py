"""Ready means ready: a server whose kernels are not compiled yet delivers all the same, or says that it is starting;
once they are, it compiles nothing."""

from __future__ import annotations

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Self

import pytest
from tests.integration.server_processes import free_port
from tests.integration.serving import LAVANT, WAIT_S_MAX

from lavant import connect
from lavant.client.encryption import Key, NumericAttribute, Schema
from lavant.core.publications.attributes import AttributeValue

COLD_S_MAX = 600
"""Kernels are compiled from nothing, on a machine that may have other things to do."""
CODE = """
import sys
from numba.core import event
from lavant.cli import app

class Late(event.Listener):
    def on_start(self, event):
        pass
    def on_end(self, event):
        if sys.exc_info()[0] is None:  # a server that finds a kernel missing does not begin to compile it
            print("compiled:", event.data["dispatcher"], file=sys.stderr, flush=True)

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
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self.errors.append(line)

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

    def wait_for_line(self, text: str) -> None:
        deadline_s = time.monotonic() + COLD_S_MAX
        while not any(text in line for line in self.errors):
            assert time.monotonic() < deadline_s, self.errors
            time.sleep(0.05)

    def wait_for_kernels(self) -> None:
        """Until then a scan stands in for what is tested here."""
        deadline_s = time.monotonic() + COLD_S_MAX
        while "lavant_kernels_loaded 1\n" not in self.get("/metrics")[1]:
            assert time.monotonic() < deadline_s, self.errors
            time.sleep(0.05)

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

    # While kernels are compiled, it delivers.
    for server in servers:
        server.wait_until_ready()
        with connect(server.url) as client, client.subscribe("a = 1") as subscription:
            client.publish({"a": 1})
            assert next(iter(subscription.notifications(timeout_s=WAIT_S_MAX))).attributes == {"a": 1}
    output, errors = published.communicate(timeout=WAIT_S_MAX)
    assert (published.returncode, output.count("\n")) == (0, 1), errors

    # What cannot be had without them is waited for, and new clients are told.
    with ThreadPoolExecutor(1) as other:
        subscribed = other.submit(subscribe_encrypted, first.url)
        while not subscribed.done():
            status, said = first.get("/readyz")
            assert (status, said) == (200, "ok\n") or "compiling kernels" in said, said
            time.sleep(0.1)
        subscribed.result()
    second.wait_for_line("kernels are compiled")

    # Once it serves, nothing is compiled.
    for server, attributes in zip(servers, (1, 7), strict=True):
        server.wait_for_kernels()
        serve_all_kinds(server.url, attributes)
        assert server.stop() == 0
        assert [line for line in server.errors if line.startswith("compiled:")] == []

    # One compiled, and told how far it was; the other waited. What is promised is what there was.
    lines = [line for server in servers for line in server.errors]
    progress = [re.search(r"INFO compiling kernels (\d+)/(\d+), once for ", line) for line in lines]
    assert sum(each is not None for each in progress) >= 1
    kept = [path for path in (cache / "kernels").iterdir() if path.suffix == ".kernel"]
    assert {int(each[2]) for each in progress if each is not None} == {len(kept)}


@pytest.mark.parametrize("module", ["models", "pipeline"])
def test_the_other_sets_promise_as_many_kernels_as_they_have(servers: list[Server], cache: Path, module: str) -> None:
    assert all(each.process.poll() is not None for each in servers), "the first test has left what it compiled"
    code = (
        f"import lavant.{module}.warmup as found; from lavant.core.kernels.warmup import KernelSet, warm_up; "
        "sets = [each for each in vars(found).values() if isinstance(each, KernelSet)]; "
        "print(warm_up(sets), sum(each.kinds for each in sets))"
    )
    environment = {**os.environ, "LAVANT_CACHE_DIR": str(cache)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    compiled, promised = map(int, ran.stdout.split())
    assert compiled == promised > 0


def subscribe_encrypted(url: str) -> None:
    key = Key.generate(Schema.of(NumericAttribute("x", 0, 100, 1)))
    with connect(url, encryption=key, timeout_s=COLD_S_MAX) as client:
        client.subscribe("x > 5", name="early")
        client.unsubscribe("early")


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
            server.wait_for_kernels()
            serve_all_kinds(server.url, 16)
            assert server.stop() == 0
            assert [line for line in server.errors if "compil" in line] == []
    finally:
        for path in (cache, *cache.rglob("*")):
            path.chmod(0o700)


def test_a_server_that_is_stopped_while_it_compiles_stops(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.wait_until_it_listens()
        server.wait_for_line("compiling kernels")
        assert server.stop() == 0
        assert not any("Traceback" in line for line in server.errors), server.errors
