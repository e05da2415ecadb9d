"""A slice store against a dict: at every version that is kept, readers find what the dict held then."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.object_stores import memory_storage
from tests.unit.broker.slices.small_stores import NUMBERS, add, expected, found, open_all, read

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices import store as module
from lavant.broker.storage.objects import ObjectStorage
from lavant.core.errors import DuplicateSubscription, StorageLocked, UnknownSubscription

IDS = st.integers(0, 11)
ADD = st.tuples(st.just("add"), st.dictionaries(IDS, st.integers(0, NUMBERS - 1), min_size=1, max_size=5))
REMOVE = st.tuples(st.just("remove"), st.lists(IDS, min_size=1, max_size=3))
OTHERS = st.sampled_from([("reopen", None), ("crash", None), ("follow", None), ("rival", None)])
RESLICE = st.tuples(st.just("reslice"), st.integers(1, 5))
STEPS = st.lists(st.one_of(ADD, REMOVE, OTHERS, RESLICE), max_size=12)


class Crash(Exception):
    pass


class Run:
    """A store, what it must hold at each version, and a reader that follows when it is told to."""

    def __init__(self, place: Path | ObjectStorage, scheme: str, slices: int) -> None:
        self.place = place
        self.is_local = isinstance(place, Path)
        self.store = SliceStore.create(place, scheme=scheme, slices=slices)
        self.oracles: list[dict[int, int]] = [{}]
        self.layouts = [slices]
        self.reader = SliceReader(place)
        self.known = open_all(self.reader, self.reader.version())

    def add(self, wanted: dict[int, int]) -> None:
        if wanted.keys() & self.oracles[-1].keys():
            with pytest.raises(DuplicateSubscription):
                add(self.store, wanted)
        else:
            assert add(self.store, wanted) == len(self.oracles)
            self._made({**self.oracles[-1], **wanted})

    def remove(self, gone: list[int]) -> None:
        if set(gone) - self.oracles[-1].keys():
            with pytest.raises(UnknownSubscription):
                self.store.remove(gone)
        else:
            assert self.store.remove(gone) == len(self.oracles)
            self._made({id: n for id, n in self.oracles[-1].items() if id not in gone})

    def reslice(self, slices: int) -> None:
        assert self.store.reslice(slices) == len(self.oracles) - (slices == self.layouts[-1])
        if slices != self.layouts[-1]:
            self._made(self.oracles[-1], slices)
        assert self.store.slices == slices

    def _made(self, oracle: dict[int, int], slices: int | None = None) -> None:
        self.oracles.append(oracle)
        self.layouts.append(self.layouts[-1] if slices is None else slices)

    def reopen(self, _: None) -> None:
        self.store = SliceStore.open(self.place)

    def rival(self, _: None) -> None:
        """At a URI: another writer is quicker, once in three times with a re-slicing."""
        if self.is_local:
            return
        slices = self.layouts[-1] % 5 + 1
        other = SliceStore.open(self.place)
        if len(self.oracles) % 3:
            assert add(other, {30 + len(self.oracles): 2}) == len(self.oracles)
            self._made({**self.oracles[-1], 30 + len(self.oracles): 2})
        else:
            other.reslice(slices)
            self._made(self.oracles[-1], slices)
        with pytest.raises(StorageLocked, match="nothing of this change was done, repeat it"):
            add(self.store, {100 + len(self.oracles): 1})

    def crash(self, _: None) -> None:
        """In the middle of an addition, when its deltas are there and its head is not."""
        with patch.object(self.store, "_publish_head", side_effect=Crash), pytest.raises(Crash):
            add(self.store, dict.fromkeys(range(20, 24), 0))

    def follow(self, _: None) -> None:
        self.known = open_all(self.reader, self.reader.version(), self.known)
        assert found(self.known, self.store.settings.scheme) == expected(self.oracles[-1])

    def check(self) -> None:
        scheme = self.store.settings.scheme
        kept = [version.number for version in self.reader.head().versions]
        assert kept == list(range(len(self.oracles)))[-module.HISTORY :]
        assert [read(self.place, number) for number in kept] == [expected(self.oracles[number]) for number in kept]
        assert [len(version.slices) for version in self.reader.head().versions] == [self.layouts[n] for n in kept]
        assert found(self.store._matchers, scheme) == expected(self.oracles[-1])
        assert len(self.store) == self.reader.version().subscriptions == len(self.oracles[-1])


def check(
    scheme: str, slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]], *, is_local: bool = True
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.dict(os.environ, {"LAVANT_CACHE": f"{directory}/cache"}),
        patch.object(module, "HISTORY", history),
        patch.object(module, "DELTAS_MAX", deltas_max),
    ):
        run = Run(Path(directory) / "store" if is_local else memory_storage(), scheme, slices)
        for name, argument in steps:
            getattr(run, name)(argument)
        run.check()
        run.follow(None)


@settings(max_examples=40)
@given(slices=st.integers(1, 3), history=st.integers(1, 6), deltas_max=st.integers(0, 4), steps=STEPS)
def test_plain_subscriptions_are_those_of_the_oracle_at_every_kept_version(
    slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]]
) -> None:
    check("plain", slices, history, deltas_max, steps)


@settings(max_examples=15)
@given(slices=st.integers(1, 2), history=st.integers(1, 4), deltas_max=st.integers(0, 2), steps=STEPS)
def test_encrypted_subscriptions_are_those_of_the_oracle_at_every_kept_version(
    slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]]
) -> None:
    check("encrypted", slices, history, deltas_max, steps)


@settings(max_examples=40)
@given(slices=st.integers(1, 3), history=st.integers(1, 6), deltas_max=st.integers(0, 4), steps=STEPS)
def test_subscriptions_at_a_uri_are_those_of_the_oracle_at_every_kept_version(
    slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]]
) -> None:
    check("plain", slices, history, deltas_max, steps, is_local=False)


@settings(max_examples=10)
@given(slices=st.integers(1, 2), history=st.integers(1, 4), deltas_max=st.integers(0, 2), steps=STEPS)
def test_encrypted_subscriptions_at_a_uri_are_those_of_the_oracle_at_every_kept_version(
    slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]]
) -> None:
    check("encrypted", slices, history, deltas_max, steps, is_local=False)
