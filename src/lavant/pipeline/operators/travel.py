"""Slices for executors that share no storage with the driver: they travel through Spark, as broadcasts.

    driver    a broadcast for each snapshot of a slice; the deltas, which are small, with the function of the tasks
    executor  `BroadcastStorage` reads them, and the cache on its own disk keeps them

Every executor gets all slices that a batch needs. A store for which that is too much belongs into object storage, from
where each executor fetches its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark import SparkContext

from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import SETTINGS, SliceFile, StoreVersion
from lavant.broker.storage.objects.interface import Parts
from lavant.pipeline.operators.access import AccessBlock
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.open_slices import SlicePlace, set_travelled
from lavant.pipeline.operators.tasks import ExitTask, MatchTask, exit_blocks, match_blocks

SCHEME = "spark-broadcast:"
RETIRED_KEPT = 64
"""Broadcasts of snapshots that no new batch needs; batches on their way may."""


class BroadcastStorage:
    """Objects in broadcasts and in a dictionary, read only; implements `ObjectStorage`."""

    def __init__(self, address: str, bundles: dict[str, Any], objects: dict[str, bytes], prefix: str = "") -> None:
        """A bundle is a broadcast dictionary of the objects whose names start with its own."""
        self.address = address
        self._bundles = bundles
        self._objects = objects
        self._prefix = prefix

    @property
    def uri(self) -> str:
        return self.address

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        found = self._find(name)
        if found is None:
            raise FileNotFoundError(f"{self.address} has no object {self._prefix}{name}")
        return found[start : None if length is None else start + length]

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        wanted = self._prefix + prefix
        names = [*self._objects]
        for start, bundle in self._bundles.items():
            if start.startswith(wanted) or wanted.startswith(start):
                names += [start + name for name in bundle.value]
        found = (name.removeprefix(self._prefix) for name in names if name.startswith(wanted))
        return sorted(name for name in found if name > after)

    def size(self, name: str) -> int | None:
        found = self._find(name)
        return None if found is None else len(found)

    def path(self, name: str) -> Path | None:
        return None

    def below(self, prefix: str) -> BroadcastStorage:
        return BroadcastStorage(self.address, self._bundles, self._objects, f"{self._prefix}{prefix}/")

    def write(self, name: str, parts: Parts) -> None:
        raise PermissionError(f"{self.address} is read only")

    def create(self, name: str, parts: Parts) -> bool:
        raise PermissionError(f"{self.address} is read only")

    def remove(self, name: str) -> None:
        raise PermissionError(f"{self.address} is read only")

    def _find(self, name: str) -> bytes | None:
        whole = self._prefix + name
        for start, bundle in self._bundles.items():
            if whole.startswith(start):
                found: bytes | None = bundle.value.get(whole.removeprefix(start))
                return found
        return self._objects.get(whole)


Luggage = Callable[[], None]
"""What a task calls first: it carries slices to where the task runs."""


class SliceTravel:
    """The driver's side, for any thread. If stores are `shared`, executors open them, and nothing travels."""

    def __init__(self, context: SparkContext, *, shared: bool) -> None:
        self._context = context
        self.shared = shared
        self._lock = threading.Lock()
        self._bundles: dict[str, dict[str, Any]] = {}
        """By store, and by the name of a snapshot."""
        self._retired: deque[Any] = deque()

    def pack(self, store: SliceReader, version: StoreVersion) -> tuple[SlicePlace, Luggage]:
        """The store as tasks find it, and the luggage that they need for this version."""
        if self.shared:
            return SlicePlace(store.address, store.identity, store.settings.scheme), _nothing
        address = f"{SCHEME}{store.identity}"
        with self._lock:
            bundles = self._load(store, version)
        objects = {name: store.storage.read(name) for name in [SETTINGS, *_deltas(version)]}

        def unpack() -> None:
            set_travelled(address, BroadcastStorage(address, bundles, objects))

        return SlicePlace(address, store.identity, store.settings.scheme), unpack

    def _load(self, store: SliceReader, version: StoreVersion) -> dict[str, Any]:
        """A broadcast of each snapshot that the version builds on."""
        known = self._bundles.setdefault(store.identity, {})
        wanted = {f"{base.base_name}/" for base in _bases(version)}
        self._retired.extend(known.pop(name) for name in [*known] if name not in wanted)
        while len(self._retired) > RETIRED_KEPT:
            self._retired.popleft().destroy()
        for name in wanted - known.keys():
            names = store.storage.names(name)
            known[name] = self._context.broadcast({each.removeprefix(name): store.storage.read(each) for each in names})
        return dict(known)


def match_function(encoded: bytes | Any, luggage: Luggage) -> Callable[[bytes], list[bytes]]:
    """The function of match tasks on encoded blocks, or on a broadcast of them."""

    def match(data: bytes) -> list[bytes]:
        luggage()
        task = msgspec.msgpack.decode(data, type=MatchTask)
        content = encoded if isinstance(encoded, bytes) else encoded.value
        blocks = msgspec.msgpack.decode(content, type=list[AccessBlock])
        return [block.to_bytes() for block in match_blocks(task, blocks)]

    return match


def exit_function(luggage: Luggage) -> Callable[[bytes, list[bytes]], bytes]:
    """The function of exit tasks."""

    def exit(data: bytes, blocks: list[bytes]) -> bytes:
        luggage()
        task = msgspec.msgpack.decode(data, type=ExitTask)
        return msgspec.msgpack.encode(exit_blocks(task, [MatchedBlock.from_bytes(block) for block in blocks]))

    return exit


def _bases(version: StoreVersion) -> list[SliceFile]:
    return [version.base(number) for number in range(len(version.slices))]


def _deltas(version: StoreVersion) -> list[str]:
    """Names of the changes since the snapshots."""
    return [
        base._replace(version=number).delta_name
        for base, last in zip(_bases(version), version.slices, strict=True)
        for number in range(base.version, last)
    ]


def _nothing() -> None:
    pass
