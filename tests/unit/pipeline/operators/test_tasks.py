"""Access and match tasks against brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.workload import expected, filters, rows

from lavant.broker.matching import Matches
from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.slices.reader import StoreVersion
from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.operators.access import PUBLICATIONS_AT_ONCE, AccessBlock, encode_range, gathered
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.tasks import ExitTask, MatchTask, exit_blocks, exit_bounds, match_blocks
from lavant.pipeline.stream.sinks import read_part


def slab(first: int, count: int, name: str = "a") -> pa.RecordBatch:
    return pa.record_batch({name: list(range(first, first + count))})


def test_little_slabs_are_gathered_and_large_ones_divided_in_their_order() -> None:
    slabs = [slab(0, 3), slab(3, 1), slab(4, PUBLICATIONS_AT_ONCE), slab(PUBLICATIONS_AT_ONCE + 4, 5)]
    batches = list(gathered(iter(slabs)))
    assert [batch.num_rows for batch in batches] == [PUBLICATIONS_AT_ONCE, 9]
    values = [value for batch in batches for value in batch.column("a").to_pylist()]
    assert values == list(range(PUBLICATIONS_AT_ONCE + 9))


def test_slabs_with_other_columns_are_not_mixed_and_keep_their_order() -> None:
    slabs = [slab(0, 2), slab(2, 2), slab(4, 1, "b"), slab(5, 2)]
    batches = [batch.to_pydict() for batch in gathered(iter(slabs))]
    assert batches == [{"a": [0, 1, 2, 3]}, {"b": [4]}, {"a": [5, 6]}]


class World:
    """A store that changes, and its subscriptions."""

    def __init__(self, directory: Path) -> None:
        self.store = SliceStore.create(directory, slices=4)
        self.texts: dict[int, str] = {}

    def subscribe(self, texts: dict[int, str]) -> None:
        self.store.add(list(texts), list(texts.values()))
        self.texts |= texts

    def unsubscribe(self, ids: list[int]) -> None:
        self.store.remove(ids)
        self.texts = {id: text for id, text in self.texts.items() if id not in ids}


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_batch_through_access_match_and_exit_is_what_brute_force_says(
    tmp_path_factory: object, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("world")  # type: ignore[attr-defined]
    world = World(directory / "store")
    world.subscribe(dict(enumerate(filters(200))))
    for number in range(data.draw(st.integers(0, 3))):
        world.subscribe({1000 * (number + 1) + i: text for i, text in enumerate(filters(20, seed=number))})
        world.unsubscribe(data.draw(st.lists(st.sampled_from(sorted(world.texts)), unique=True, max_size=60)))
        publications = rows(40, seed=number)
        bad = sorted(data.draw(st.sets(st.integers(0, 39), max_size=10)))
        records = PublicationBatch.from_dicts(publications).records
        price = records.column("price").to_numpy(zero_copy_only=False).copy()
        price[bad] = np.inf
        records = records.set_column(
            records.schema.get_field_index("price"), "price", pa.array(price, mask=np.isnan(price))
        )
        parts = notified(directory, world, records, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
        good = [row for place, row in enumerate(publications) if place not in bad]
        found = {row["id"]: sorted(row["subscriptions"]) for row in parts if row["rejected"] is None}
        assert found == expected(world.texts, good)
        assert [row["id"] for row in parts if row["rejected"]] == [f"p{place}" for place in bad]


def notified(directory: Path, world: World, records: pa.RecordBatch, hosts: int, exits: int) -> list[dict[str, Any]]:
    reader = SliceReader(directory / "store")
    place = SlicePlace(reader.address, reader.identity, "plain")
    version = reader.version()
    half = records.num_rows // 2
    blocks: list[AccessBlock] = [
        encode_range("plain", "log", 0, [LogBatch(0, records.slice(0, half))]),
        encode_range("plain", "log", half, [LogBatch(half, records.slice(half))]),
    ]
    bounds = exit_bounds(records.num_rows, [(0,)] * exits)
    found = [
        match_blocks(
            MatchTask(store=place, version=version, host=host, slices=tuple(range(host, 4, hosts)), exits=bounds),
            blocks,
        )
        for host in range(hosts)
    ]
    rows: list[dict[str, Any]] = []
    for exit in range(exits):
        parts = [MatchedBlock.from_bytes(each[exit].to_bytes()) for each in found]
        task = ExitTask(
            store=place, version=version, host=0, slices=(exit,), output=str(directory / "out"), part=f"{exit}.parquet"
        )
        report = exit_blocks(task, parts)
        assert report.content is None
        if report.part.rows:
            rows += read_part_of(directory, report.part)
    return rows


def read_part_of(directory: Path, part: object) -> list[dict[str, Any]]:
    from lavant.broker.storage.objects import open_storage

    return read_part(open_storage(directory / "out"), part).to_pylist()  # type: ignore[arg-type, no-any-return]


def test_what_returns_to_the_driver_does_not_grow_with_the_matches(tmp_path: Path) -> None:
    sizes = []
    for matches in (1, 2_000_000):
        rest = Matches(np.array([0, matches]), np.arange(matches, dtype=np.uint32))
        block = MatchedBlock(0, 1, 0, [], rest, [], pa.array(["p"]), [])
        place = SlicePlace("", "store", "plain")
        task = ExitTask(
            store=place,
            version=StoreVersion(1, (0,), (0,)),
            host=0,
            slices=(0,),
            output=str(tmp_path),
            part="p.parquet",
        )
        report = exit_blocks(task, [block])
        assert report.part.matches == matches
        sizes.append(len(msgspec.msgpack.encode(report)))
    assert abs(sizes[1] - sizes[0]) < 30
