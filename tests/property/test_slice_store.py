"""A slice store against a dict: at every version that is kept, readers find what the dict held then."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.slices.small_stores import NUMBERS, add, expected, found, open_all, read

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices import store as module
from lavant.core.errors import DuplicateSubscription, UnknownSubscription

IDS = st.integers(0, 11)
ADD = st.tuples(st.just("add"), st.dictionaries(IDS, st.integers(0, NUMBERS - 1), min_size=1, max_size=5))
REMOVE = st.tuples(st.just("remove"), st.lists(IDS, min_size=1, max_size=3))
OTHERS = st.sampled_from([("reopen", None), ("crash", None), ("follow", None)])
STEPS = st.lists(st.one_of(ADD, REMOVE, OTHERS), max_size=12)


class Crash(Exception):
    pass


class Run:
    """A store, what it must hold at each version, and a reader that follows when it is told to."""

    def __init__(self, directory: Path, scheme: str, slices: int) -> None:
        self.store = SliceStore.create(directory, scheme=scheme, slices=slices)
        self.oracles: list[dict[int, int]] = [{}]
        self.reader = SliceReader(directory)
        self.known = open_all(self.reader, self.reader.version())

    def add(self, wanted: dict[int, int]) -> None:
        if wanted.keys() & self.oracles[-1].keys():
            with pytest.raises(DuplicateSubscription):
                add(self.store, wanted)
        else:
            assert add(self.store, wanted) == len(self.oracles)
            self.oracles.append({**self.oracles[-1], **wanted})

    def remove(self, gone: list[int]) -> None:
        if set(gone) - self.oracles[-1].keys():
            with pytest.raises(UnknownSubscription):
                self.store.remove(gone)
        else:
            assert self.store.remove(gone) == len(self.oracles)
            self.oracles.append({id: n for id, n in self.oracles[-1].items() if id not in gone})

    def reopen(self, _: None) -> None:
        self.store = SliceStore.open(self.store.directory)

    def crash(self, _: None) -> None:
        """In the middle of an addition, when its deltas are there and its head is not."""
        with patch.object(self.store, "_publish_head", side_effect=Crash), pytest.raises(Crash):
            add(self.store, dict.fromkeys(range(20, 24), 0))

    def follow(self, _: None) -> None:
        self.known = open_all(self.reader, self.reader.version(), self.known)
        assert found(self.known, self.store.settings.scheme) == expected(self.oracles[-1])

    def check(self) -> None:
        directory, scheme = self.store.directory, self.store.settings.scheme
        kept = [version.number for version in self.reader.head().versions]
        assert kept == list(range(len(self.oracles)))[-module.HISTORY :]
        assert [read(directory, number) for number in kept] == [expected(self.oracles[number]) for number in kept]
        assert found(self.store._matchers, scheme) == expected(self.oracles[-1])
        assert len(self.store) == self.reader.version().subscriptions == len(self.oracles[-1])


def check(scheme: str, slices: int, history: int, deltas_max: int, steps: list[tuple[str, Any]]) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        patch.object(module, "HISTORY", history),
        patch.object(module, "DELTAS_MAX", deltas_max),
    ):
        run = Run(Path(place), scheme, slices)
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
