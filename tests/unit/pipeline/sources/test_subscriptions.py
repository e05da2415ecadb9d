"""A slice store as a table: every subscription once, at each version, in whatever number of slices it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.broker.slices import SliceStore
from lavant.pipeline.sources.subscriptions import SubscriptionReader


def table(store: SliceStore, version: int | None = None) -> dict[int, tuple[int, str]]:
    """Slice and filter by id, read as Spark does: partitions in the driver, the rows of each in a task."""
    options = {"path": str(store.directory)} | ({} if version is None else {"version": str(version)})
    reader = SubscriptionReader(options)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    found = {id: (slice, text) for id, slice, text in rows}
    assert len(found) == len(rows), "each subscription is one row"
    return found


@pytest.mark.parametrize(("first", "then"), [(1, 7), (5, 2), (3, 3)])
def test_a_store_has_all_its_subscriptions_after_its_number_of_slices_changes(
    tmp_path: Path, first: int, then: int
) -> None:
    store = SliceStore.create(tmp_path / "store", slices=first)
    store.add(range(200), [f"x > {number}" for number in range(200)])
    before = table(store)
    kept = store.version
    store.reslice(then)
    store.remove([7])
    after = table(store)
    assert {id: text for id, (_, text) in before.items()} == {id: f"x > {id}" for id in range(200)}
    assert {id: text for id, (_, text) in after.items()} == {id: f"x > {id}" for id in range(200) if id != 7}
    assert {slice for slice, _ in after.values()} == set(range(then))
    assert table(store, kept) == before
