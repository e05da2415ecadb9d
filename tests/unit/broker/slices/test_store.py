"""Subscriptions in slices: changed by one, read by many at the version that they choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.conformance.matcher_cases import KEY as FOUR_ATTRIBUTES
from tests.unit.broker.slices.small_stores import Oracle, add, expected, files, found, open_all, read, wants

from lavant.broker.filters import Filter
from lavant.broker.matching.plain.encoder import encode_filters
from lavant.broker.slices import SliceReader, SliceStore, slice_of
from lavant.broker.slices import store as module
from lavant.broker.slices.reader import SliceFile
from lavant.core.errors import CorruptSnapshot, DuplicateSubscription, InvalidValue, UnknownSubscription

FIRST: Oracle = {id: id % 5 for id in range(20)}


@pytest.fixture(params=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SliceStore:
    return SliceStore.create(tmp_path / "store", scheme=request.param, slices=4)


@pytest.fixture
def plain(tmp_path: Path) -> SliceStore:
    return SliceStore.create(tmp_path / "store", slices=4)


def base_names(store: SliceStore, slice: int) -> list[str]:
    return sorted(path.name for path in (store.directory / f"slice-{slice:04d}").glob("base-*"))


def delta_names(store: SliceStore, slice: int) -> list[str]:
    return sorted(path.name for path in (store.directory / f"slice-{slice:04d}").glob("delta-*"))


# ---- changing and reading -------------------------------------------------------------------------------------------


def test_a_new_store_is_empty_and_of_version_zero(store: SliceStore) -> None:
    assert (store.version, len(store)) == (0, 0)
    assert read(store.directory) == expected({})


def test_what_is_added_is_found_and_what_is_removed_is_not(store: SliceStore) -> None:
    assert add(store, FIRST) == 1
    assert len(store) == 20
    assert store.remove([3, 4, 3]) == 2
    assert len(store) == 18
    assert read(store.directory) == expected({id: n for id, n in FIRST.items() if id not in (3, 4)})
    assert SliceReader(store.directory).version().subscriptions == 18


def test_a_store_that_is_opened_again_goes_on_where_it_was(store: SliceStore) -> None:
    add(store, FIRST)
    store.remove([0])
    again = SliceStore.open(store.directory)
    assert (again.version, len(again), again.settings) == (2, 19, store.settings)
    assert add(again, {0: 4, 77: 4}) == 3
    assert read(store.directory) == expected({**FIRST, 0: 4, 77: 4})


def test_every_subscription_lives_in_the_slice_that_its_id_says(store: SliceStore) -> None:
    add(store, FIRST)
    matchers = open_all(SliceReader(store.directory), SliceReader(store.directory).version())
    places = slice_of(np.array(list(FIRST), np.uint32), 4).tolist()
    assert [[id in matcher for matcher in matchers].index(True) for id in FIRST] == places
    assert sum(len(matcher) for matcher in matchers) == 20


def test_a_removed_id_can_be_taken_again(store: SliceStore) -> None:
    add(store, {7: 1})
    store.remove([7])
    add(store, {7: 2})
    assert read(store.directory) == expected({7: 2})


def test_encoded_filters_do_as_well_as_texts(plain: SliceStore) -> None:
    plain.add([1, 2], encode_filters(["x = 1", "x = 2"]))
    assert read(plain.directory) == expected({1: 1, 2: 2})


def test_changing_nothing_makes_no_version(store: SliceStore) -> None:
    add(store, {1: 1})
    before = files(store.directory)
    assert store.remove([]) == 1
    if store.settings.scheme == "plain":
        assert store.add([], []) == 1
    assert files(store.directory) == before


# ---- versions -------------------------------------------------------------------------------------------------------


def test_an_old_version_still_gives_the_old_matches_and_the_new_one_the_new(store: SliceStore) -> None:
    oracles: list[Oracle] = [{}]
    for step in range(6):
        add(store, {100 + step: step % 5})
        oracles.append({**oracles[-1], 100 + step: step % 5})
    store.remove([100, 103])
    oracles.append({id: n for id, n in oracles[-1].items() if id not in (100, 103)})
    assert [read(store.directory, number) for number in range(8)] == [expected(oracle) for oracle in oracles]


def test_a_version_beyond_the_history_is_refused_and_the_oldest_kept_can_be_read(
    plain: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HISTORY", 3)
    for step in range(5):
        add(plain, {step: 0})
    with pytest.raises(InvalidValue, match=r"version 2 is no longer kept; .* holds 3 to 5"):
        SliceReader(plain.directory).version(2)
    assert read(plain.directory, 3) == expected({0: 0, 1: 0, 2: 0})


def test_the_history_is_as_long_as_promised(plain: SliceStore) -> None:
    for step in range(module.HISTORY + 5):
        add(plain, {step: 0})
    kept = [version.number for version in SliceReader(plain.directory).head().versions]
    assert kept == list(range(6, module.HISTORY + 6))
    assert read(plain.directory, 6) == expected(dict.fromkeys(range(6), 0))


def test_a_reader_follows_by_deltas_and_opens_nothing_anew(store: SliceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    add(store, FIRST)
    reader = SliceReader(store.directory)
    known = open_all(reader, reader.version())
    add(store, {50: 1, 51: 2, 52: 3, 53: 4})
    store.remove([0, 1, 2])
    with monkeypatch.context() as patch:
        patch.setattr(SliceFile, "base_name", property(lambda _: pytest.fail("a snapshot was opened")))
        forward = open_all(reader, reader.version(), known)
    assert all(new is old for new, old in zip(forward, known, strict=True))
    assert found(forward, store.settings.scheme) == read(store.directory)


def test_a_reader_that_knows_a_newer_version_opens_the_older_one_from_files(store: SliceStore) -> None:
    add(store, FIRST)
    store.remove([5, 6])
    reader = SliceReader(store.directory)
    newest = open_all(reader, reader.version())
    older = open_all(reader, reader.version(1), newest)
    assert found(older, store.settings.scheme) == expected(FIRST)
    assert found(newest, store.settings.scheme) == read(store.directory)


def test_a_reader_that_is_left_behind_by_a_new_base_opens_it(plain: SliceStore) -> None:
    add(plain, FIRST)
    reader = SliceReader(plain.directory)
    known = open_all(reader, reader.version())
    for step in range(4 * (module.DELTAS_MAX + 2)):
        add(plain, {1000 + step: 0})
    assert found(open_all(reader, reader.version(), known)) == read(plain.directory)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_slice_is_written_anew_once_it_has_too_many_deltas(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path, slices=1)
    for step in range(module.DELTAS_MAX):
        add(store, {step: 0})
    assert base_names(store, 0) == ["base-0000000000"]
    assert len(delta_names(store, 0)) == module.DELTAS_MAX
    add(store, {999: 1})
    assert base_names(store, 0) == ["base-0000000000", f"base-{module.DELTAS_MAX + 1:010d}"]
    assert len(delta_names(store, 0)) == module.DELTAS_MAX
    assert read(tmp_path) == expected({**dict.fromkeys(range(module.DELTAS_MAX), 0), 999: 1})


def test_a_large_change_is_a_new_base_rather_than_a_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELTA_BYTES_MAX", 10)
    store = SliceStore.create(tmp_path, slices=1)
    add(store, FIRST)
    assert (base_names(store, 0), delta_names(store, 0)) == (["base-0000000000", "base-0000000001"], [])
    assert read(tmp_path) == expected(FIRST)


def test_files_are_deleted_only_when_no_kept_version_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HISTORY", 5)
    monkeypatch.setattr(module, "DELTAS_MAX", 3)
    store = SliceStore.create(tmp_path, slices=1)
    oracles: list[Oracle] = [{}]
    for step in range(30):
        add(store, {step: step % 5})
        oracles.append({**oracles[-1], step: step % 5})
        kept = [version.number for version in SliceReader(tmp_path).head().versions]
        assert [read(tmp_path, number) for number in kept] == [expected(oracles[number]) for number in kept]
        assert len(base_names(store, 0)) <= 3
        assert len(delta_names(store, 0)) <= 2 * 3 + 3
    oldest = min(version.bases[0] for version in SliceReader(tmp_path).head().versions)
    assert oldest > 0
    assert base_names(store, 0)[0] == f"base-{oldest:010d}"
    assert delta_names(store, 0)[0] >= f"delta-{oldest:010d}"


def test_a_change_touches_only_the_slices_it_concerns(plain: SliceStore) -> None:
    add(plain, FIRST)
    before = files(plain.directory)
    add(plain, {100: 1})
    changed = {
        name.partition("/")[0] for name, content in files(plain.directory).items() if before.get(name) != content
    }
    (slice,) = slice_of(np.array([100], np.uint32), 4).tolist()
    assert changed == {"head.json", f"slice-{slice:04d}"}


# ---- refusing -------------------------------------------------------------------------------------------------------


def test_an_addition_with_an_id_that_is_taken_changes_nothing_anywhere(store: SliceStore) -> None:
    add(store, FIRST)
    on_disk = files(store.directory)
    for taken in FIRST:  # whichever slice it is in, some of the others have had their part by then
        with pytest.raises(DuplicateSubscription, match=f"subscription {taken} exists already"):
            add(store, {**{200 + i: 1 for i in range(12)}, taken: 1})
    assert files(store.directory) == on_disk
    assert (store.version, len(store)) == (1, 20)
    assert found(store._matchers, store.settings.scheme) == expected(FIRST)
    assert add(store, {200: 1}) == 2
    assert read(store.directory) == expected({**FIRST, 200: 1})


def test_a_removal_of_somebody_unknown_changes_nothing_anywhere(store: SliceStore) -> None:
    add(store, FIRST)
    on_disk = files(store.directory)
    for unknown in range(100, 112):
        with pytest.raises(UnknownSubscription, match=f"no subscription has id {unknown}"):
            store.remove([*FIRST, unknown])
    assert files(store.directory) == on_disk
    assert found(store._matchers, store.settings.scheme) == expected(FIRST)
    store.remove(list(FIRST))
    assert read(store.directory) == expected({})


def test_ids_and_filters_of_different_number_are_refused(store: SliceStore) -> None:
    with pytest.raises(InvalidValue, match="got 2 ids for 1 filters"):
        store.add([1, 2], wants(store.settings.scheme, [1]))
    assert store.version == 0


def test_encrypted_filters_of_another_shape_are_refused_even_by_an_empty_slice(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path, scheme="encrypted", slices=64)
    add(store, {0: 1})
    other = FOUR_ATTRIBUTES.encrypt_filters([Filter.parse("a > 3")])
    for id in range(1, 10):
        with pytest.raises(InvalidValue, match="cannot join those of"):
            store.add([id], other)
    assert read(tmp_path) == expected({0: 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "scan"}, "scheme 'scan' is none of plain, encrypted"),
        ({"slices": 0}, "between 1 and 4096 slices, got 0"),
        ({"slices": 4097}, "between 1 and 4096 slices, got 4097"),
    ],
)
def test_a_store_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        SliceStore.create(tmp_path / "store", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()


def test_a_store_is_not_created_over_another(plain: SliceStore) -> None:
    with pytest.raises(InvalidValue, match="holds a store already"):
        SliceStore.create(plain.directory)


def test_a_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    for open in (SliceReader, SliceStore.open):
        with pytest.raises(CorruptSnapshot, match=r"holds no subscriptions: store.json is missing"):
            open(tmp_path)


@pytest.mark.parametrize("name", ["store.json", "head.json"])
def test_a_damaged_file_is_named(plain: SliceStore, name: str) -> None:
    (plain.directory / name).write_bytes(b'{"versi')
    with pytest.raises(CorruptSnapshot, match=f"{name} is damaged: .*; restore it from a copy"):
        SliceStore.open(plain.directory)


def test_a_missing_delta_is_named(tmp_path: Path) -> None:
    store = SliceStore.create(tmp_path, slices=1)
    add(store, {1: 1})
    (tmp_path / "slice-0000" / "delta-0000000000").unlink()
    with pytest.raises(CorruptSnapshot, match=r"delta-0000000000 is missing"):
        SliceStore.open(tmp_path)


# ---- spreading ------------------------------------------------------------------------------------------------------


def test_the_slice_of_an_id_never_changes() -> None:
    """Stores on disk depend on it."""
    ids = np.array([0, 1, 2, 3, 7, 1000, 123_456_789, 2**32 - 1], np.uint32)
    assert slice_of(ids, 16).tolist() == [0, 9, 2, 12, 2, 9, 4, 11]
    assert slice_of(ids, 7).tolist() == [0, 6, 1, 1, 1, 0, 6, 5]
    assert slice_of(ids, 4096).tolist() == [0, 2489, 882, 3372, 1042, 3225, 4, 603]
    assert slice_of(ids, 1).tolist() == [0] * 8


@pytest.mark.parametrize("slices", [2, 7, 16, 100, 4096])
@pytest.mark.parametrize("step", [1, 10, 16, 1000, 1024, 4095, 65536])
def test_ids_in_steps_of_any_kind_spread_evenly(step: int, slices: int) -> None:
    """Chi-square by its degrees of freedom: about 1 for chance, less for better, and 100 000 / slices for the worst."""
    ids = (np.arange(60_000, dtype=np.int64) * step).astype(np.uint32)
    counts = np.bincount(slice_of(ids, slices), minlength=slices)
    even = len(ids) / slices
    assert ((counts - even) ** 2 / even).sum() / (slices - 1) < 1.5
