"""Brokers of a federation as real processes, with what is published, due and delivered."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.frames import FrameClient
from tests.integration.server_processes import free_port
from tests.integration.serving import WAIT_S_MAX, Served

from lavant.broker.protocol.queues import Done
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Subscribed, Unsubscribe


class Broker:
    """`lavant serve --name`, on a port of its own, so that it is found again after a crash.

    Unless the options say otherwise it serves publishers and subscribers, so that a test decides who is where.
    """

    def __init__(self, home: Path, name: str, *joins: Broker | str, options: tuple[str, ...] = ()) -> None:
        self.name = name
        self.port = free_port()
        self._data = home / name
        self._log = home / f"{name}.log"
        urls = [each if isinstance(each, str) else each.url for each in joins]
        joined = (part for url in urls for part in ("--join", url))
        self._options = ("--name", name, *joined, *(() if "--role" in options else ("--role", "any")), *options)
        self.start()

    @property
    def url(self) -> str:
        return f"lavant://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.served = _Logged(self._data, self._log, *self._options, port=self.port)

    def kill(self) -> None:
        self.served.kill()

    def stop(self) -> int:
        return self.served.stop()

    def client(self) -> FrameClient:
        return FrameClient(self.port)

    def subscribe(self, filter: str, name: str) -> None:
        with self.client() as client:
            answer = client.ask(Subscribe(filter, name))
            assert isinstance(answer, Subscribed), answer

    def unsubscribe(self, name: str) -> None:
        with self.client() as client:
            assert isinstance(client.ask(Unsubscribe(name)), Done)

    def publish(self, *publications: dict[str, Any], key: str = "") -> Published:
        with self.client() as client:
            answer = client.ask(Publish([json.dumps(each).encode() for each in publications], key))
            assert isinstance(answer, Published), answer
            return answer

    def received(self, queue: str) -> Counter[str]:
        """All that is in a queue, by id; it is empty afterwards."""
        with self.client() as client:
            return Counter(json.loads(body)["@id"] for body in client.drain(queue))

    def view(self) -> dict[str, Any]:
        with self.served.http("/federation") as response:
            view: dict[str, Any] = json.load(response)
            return view

    def link(self, neighbour: str) -> dict[str, Any]:
        return next(link for link in self.view()["links"] if link["neighbour"] == neighbour)

    def depth(self, queue: str) -> int:
        """Messages that can be received now; metrics would be up to a second old."""
        with self.served.http(f"/queues/{queue}") as response:
            depth: int = json.load(response)["messages"]["visible"]
            return depth

    @property
    def log(self) -> str:
        return self._log.read_text()


class _Logged(Served):
    """Its error output goes to a file, also over restarts."""

    def __init__(self, data: Path, log: Path, *options: str, port: int) -> None:
        self._file = log.open("a")
        super().__init__(data, *options, port=port)

    def _popen(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._file, text=True)

    def errors(self) -> str:
        return ""

    def _close(self) -> None:
        super()._close()
        self._file.close()


def wait_until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.02)


def wait_for_members(*brokers: Broker) -> None:
    """Until each knows all."""
    names = sorted(each.name for each in brokers)
    for broker in brokers:
        wait_until(partial(_knows, broker, names), broker.view)


def _knows(broker: Broker, names: list[str]) -> bool:
    return sorted(each["name"] for each in broker.view()["members"]) == names


def wait_for_subscriptions(broker: Broker, neighbour: str, count: int) -> None:
    wait_until(lambda: broker.link(neighbour)["subscriptions"] == count, broker.view)
