"""Where the manager keeps its state, so that it restarts where it was: files by default, ZooKeeper for clusters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from lavant.broker.matching.container import sync_directory
from lavant.core.errors import MissingComponent

TIMEOUT_S = 5.0


class Coordination(Protocol):
    """Small named values that survive; each is replaced as a whole."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, value: bytes) -> None: ...


class FileCoordination:
    """A directory with a file for each name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, value: bytes) -> None:
        temporary = self._directory / f"{name}.partial"
        with temporary.open("wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._directory / name)
        sync_directory(self._directory)


class ZooKeeperCoordination:
    """A node for each name below `root`; needs the extra `zookeeper`, and values below ZooKeeper's 1 MB."""

    def __init__(self, hosts: str, root: str = "/lavant") -> None:
        try:
            from kazoo.client import KazooClient  # noqa: PLC0415
            from kazoo.handlers.threading import KazooTimeoutError  # noqa: PLC0415
        except ImportError:
            raise MissingComponent("ZooKeeper needs kazoo; install lavant[zookeeper]") from None
        self._client: Any = KazooClient(hosts=hosts, timeout=TIMEOUT_S)
        self._root = root
        try:
            self._client.start(timeout=TIMEOUT_S)
        except KazooTimeoutError:
            self._client.stop()
            raise MissingComponent(f"ZooKeeper at {hosts} does not answer within {TIMEOUT_S:.0f} s") from None
        self._client.ensure_path(root)

    def get(self, name: str) -> bytes | None:
        path = f"{self._root}/{name}"
        return bytes(self._client.get(path)[0]) if self._client.exists(path) else None

    def put(self, name: str, value: bytes) -> None:
        path = f"{self._root}/{name}"
        if self._client.exists(path):
            self._client.set(path, value)
        else:
            self._client.create(path, value)

    def close(self) -> None:
        self._client.stop()
        self._client.close()
