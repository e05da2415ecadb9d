"""Durable storage of the manager's state: files or objects by default, or ZooKeeper."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import LimitExceeded, MissingComponent
from lavant.core.packages import named_extras

TIMEOUT_S = 20.0
"""How long to wait for an answer: longer than a server takes to come back."""
SESSION_S = 5.0
RECONNECT_S_MAX = 0.5
"""Between two attempts to connect; kazoo's own growing pauses would outlast the restart that they wait for."""
RETRY_S = 0.05
VALUE_BYTES_MAX = 1_000_000
"""ZooKeeper drops the connection at a little more, without an error."""


class Coordination(Protocol):
    """Small named durable values; each is replaced atomically."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, value: bytes) -> None: ...


class FileCoordination:
    """A directory, or a URI, with an object for each name."""

    def __init__(self, place: str | Path | ObjectStorage) -> None:
        self._storage = open_storage(place)

    def get(self, name: str) -> bytes | None:
        try:
            return self._storage.read(name)
        except FileNotFoundError:
            return None

    def put(self, name: str, value: bytes) -> None:
        _check_size(name, value)
        self._storage.write(name, [value])


class ZooKeeperCoordination:
    """A node for each name below `root`; needs the extra `zookeeper`.

    A server that disappears is waited for, up to `TIMEOUT_S`; then it counts as a missing component.
    """

    def __init__(self, hosts: str, root: str = "/lavant") -> None:
        with named_extras():
            from kazoo import exceptions  # noqa: PLC0415
            from kazoo.client import KazooClient  # noqa: PLC0415
            from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415
        # Without configured logging, each of kazoo's attempts to connect would be printed.
        logging.getLogger("kazoo").addHandler(logging.NullHandler())
        self._no_node: type[Exception] = exceptions.NoNodeError
        self._exists: type[Exception] = exceptions.NodeExistsError
        self._passing = (exceptions.ConnectionLoss, exceptions.OperationTimeoutError, exceptions.SessionExpiredError)
        self._timeout: type[Exception] = KazooTimeoutError
        self._hosts = hosts
        self._root = root
        reconnect = {"max_tries": -1, "max_delay": RECONNECT_S_MAX}
        self._client: Any = KazooClient(hosts=hosts, timeout=SESSION_S, connection_retry=reconnect)
        try:
            self._client.start(timeout=TIMEOUT_S)
            self._ask(lambda: self._client.ensure_path_async(root))
        except self._timeout:
            self.close()
            raise self._does_not_answer() from None
        except MissingComponent:
            self.close()
            raise

    def get(self, name: str) -> bytes | None:
        try:
            return bytes(self._ask(lambda: self._client.get_async(f"{self._root}/{name}"))[0])
        except self._no_node:
            return None

    def put(self, name: str, value: bytes) -> None:
        _check_size(name, value)
        path = f"{self._root}/{name}"
        try:
            self._ask(lambda: self._client.set_async(path, value))
        except self._no_node:
            try:
                self._ask(lambda: self._client.create_async(path, value))
            except self._exists:  # an attempt whose answer was lost, or another manager
                self._ask(lambda: self._client.set_async(path, value))

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _ask(self, request: Callable[[], Any]) -> Any:
        """Send a request, again when the connection broke: kazoo alone would wait forever."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return request().get(timeout=max(deadline - time.monotonic(), RETRY_S))
            except self._timeout:
                raise self._does_not_answer() from None
            except self._passing:
                if time.monotonic() > deadline:
                    raise self._does_not_answer() from None
                time.sleep(RETRY_S)

    def _does_not_answer(self) -> MissingComponent:
        return MissingComponent(f"ZooKeeper at {self._hosts} does not answer within {TIMEOUT_S:.0f} s")


def _check_size(name: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise LimitExceeded(f"the value of {name!r} has {len(value)} bytes, at most {VALUE_BYTES_MAX} are kept")
