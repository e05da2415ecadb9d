"""Slices for executors that share no storage with the driver: they travel through Spark, as broadcasts.

    driver    a broadcast for each snapshot of a slice, and the deltas with the function of the tasks
    executor  `BroadcastStorage` reads them; the slice cache on its own disk keeps them

Every executor gets every slice that a batch needs, so a store for which that is too much belongs into object storage,
where each executor fetches its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.objects.interface import Parts
from lavant.pipeline.stream.open_slices import SlicePlace, set_travelled

SCHEME = "spark-broadcast:"


class BroadcastStorage:
    """Objects in broadcasts and in a dictionary, read only; implements `ObjectStorage`."""

    def __init__(self, address: str, bundles: dict[str, Any], objects: dict[str, bytes]) -> None:
        """A bundle holds the objects below its name."""
        self.address = address
        self._bundles = bundles
        self._objects = objects

    @property
    def uri(self) -> str:
        return self.address

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        found = self._find(name)
        if found is None:
            raise FileNotFoundError(f"{self.address} has no object {name!r}")
        return found[start : None if length is None else start + length]

    def names(self, prefix: str = "", after: str = "") -> list[str]:
        inside = [
            f"{name}{each}" for name, bundle in self._bundles.items() if _meet(name, prefix) for each in bundle.value
        ]
        return sorted(name for name in [*inside, *self._objects] if name.startswith(prefix) and name > after)

    def size(self, name: str) -> int | None:
        found = self._find(name)
        return None if found is None else len(found)

    def path(self, name: str) -> Path | None:
        return None

    def below(self, prefix: str) -> BroadcastStorage:
        raise NotImplementedError

    def write(self, name: str, parts: Parts) -> None:
        raise PermissionError(f"{self.address} is read only")

    def create(self, name: str, parts: Parts) -> bool:
        raise PermissionError(f"{self.address} is read only")

    def remove(self, name: str) -> None:
        raise PermissionError(f"{self.address} is read only")

    def _find(self, name: str) -> bytes | None:
        if name in self._objects:
            return self._objects[name]
        for prefix, bundle in self._bundles.items():
            if name.startswith(prefix):
                found: bytes | None = bundle.value.get(name.removeprefix(prefix))
                return found
        return None


def _meet(name: str, prefix: str) -> bool:
    return name.startswith(prefix) or prefix.startswith(name)


class SliceTravel:
    """The driver's side. `is_shared` says that executors open the stores by themselves."""

    def __init__(self, context: SparkContext, *, is_shared: bool) -> None:
        self._context = context
        self._is_shared = is_shared
        self._bundles: dict[str, dict[str, Any]] = {}
        """By store and by the name of a snapshot."""
        self._objects: dict[str, dict[str, bytes]] = {}
        self._places: dict[SlicePlace, None] = {}

    def place(self, store: SliceReader, version: StoreVersion) -> SlicePlace:
        """The store as the tasks of a batch find it; what they need is on its way."""
        if self._is_shared:
            return self._note(SlicePlace(store.address, store.identity, store.settings.scheme))
        known = self._bundles.setdefault(store.identity, {})
        wanted = store.snapshot_names(version)
        for name in [name for name in known if name not in wanted]:
            known.pop(name).unpersist()
        for name in wanted:
            if name not in known:
                known[name] = self._context.broadcast(_content(store, name))
        self._objects[store.identity] = {name: store.storage.read(name) for name in store.other_names(version)}
        return self._note(SlicePlace(f"{SCHEME}{store.identity}", store.identity, store.settings.scheme))

    def places(self) -> list[SlicePlace]:
        """All stores so far."""
        return list(self._places)

    def forget(self, identities: Iterable[str]) -> None:
        """Stores that are no longer matched."""
        for identity in identities:
            self._objects.pop(identity, None)
            for bundle in self._bundles.pop(identity, {}).values():
                bundle.unpersist()

    def _note(self, place: SlicePlace) -> SlicePlace:
        self._places[place] = None
        return place

    def luggage(self) -> Callable[[], None]:
        """A function for the tasks to call first: it carries the slices."""
        if self._is_shared:
            return _nothing
        bundles = {identity: dict(known) for identity, known in self._bundles.items()}
        objects = dict(self._objects)

        def unpack() -> None:
            for identity, known in bundles.items():
                address = f"{SCHEME}{identity}"
                set_travelled(address, BroadcastStorage(address, known, objects[identity]))

        return unpack


def _content(store: SliceReader, name: str) -> dict[str, bytes]:
    return {each.removeprefix(name): store.storage.read(each) for each in store.storage.names(name)}


def _nothing() -> None:
    pass
