"""A store's identity: kept for its life, and another store at the same path is not taken for it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from lavant.broker.slices import SliceReader, SliceStore
from lavant.core.errors import IdentityMismatch
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice

EVENT = PublicationBatch.from_dicts([{"x": 1}])


def make(directory: Path, text: str) -> SliceStore:
    shutil.rmtree(directory, ignore_errors=True)
    store = SliceStore.create(directory, slices=1)
    store.add([1], [text])
    return store


def make_old(directory: Path, *, written_s: int) -> None:
    """As stores were written before there were identities."""
    path = directory / "store.json"
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "identity"})
    )
    os.utime(path, (written_s, written_s))


def test_a_store_keeps_its_identity_and_no_other_has_it(tmp_path: Path) -> None:
    first = make(tmp_path, "x = 1")
    again = SliceStore.open(tmp_path)
    again.add([2], ["x = 2"])
    assert SliceReader(tmp_path).identity == again.settings.identity == first.settings.identity
    assert make(tmp_path, "x = 1").settings.identity != first.settings.identity


def test_a_slice_of_another_store_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    """The versions of both have the same numbers."""
    for text, wanted in (("x = 1", 1), ("x = 2", 0), ("x < 5", 1)):
        make(tmp_path, text)
        store = SliceReader(tmp_path)
        place = SlicePlace(store.address, store.identity, "plain")
        assert len(open_slice(place, 0, store.version()).matcher.match(EVENT).ids) == wanted


def test_a_store_made_anew_has_no_version_of_the_old_one(tmp_path: Path) -> None:
    make(tmp_path, "x = 1")
    reader = SliceReader(tmp_path)
    number = reader.version().number
    make(tmp_path, "x = 2")
    assert SliceReader(tmp_path).version().number == number
    with pytest.raises(IdentityMismatch, match="are not those read before"):
        reader.version()


def test_files_of_a_store_made_anew_are_not_read_as_the_old_ones(tmp_path: Path) -> None:
    make(tmp_path, "x = 1")
    reader = SliceReader(tmp_path)
    version, known = reader.version(), reader.matcher(0, reader.version())
    make(tmp_path, "x = 2").add([2], ["x = 3"])
    later = SliceReader(tmp_path).version()
    assert reader.matcher(0, version, known) is known
    for old in (None, known):
        with pytest.raises(IdentityMismatch, match="are not those read before"):
            reader.matcher(0, later, old)
    with pytest.raises(IdentityMismatch):
        SliceReader(tmp_path, reader.identity)


def test_a_store_of_old_opens_with_an_identity_that_stays(tmp_path: Path) -> None:
    make(tmp_path, "x = 1")
    make_old(tmp_path, written_s=1000)
    derived = SliceReader(tmp_path).identity
    before = (tmp_path / "store.json").read_bytes()
    store = SliceStore.open(tmp_path)
    assert (tmp_path / "store.json").read_bytes() == before
    store.add([2], ["x = 2"])
    store.add([3], ["x = 3"])
    assert json.loads((tmp_path / "store.json").read_text())["identity"] == derived
    assert SliceReader(tmp_path, derived).version().number == 3
    make(tmp_path, "x = 1")
    make_old(tmp_path, written_s=2000)
    assert SliceReader(tmp_path).identity != derived
