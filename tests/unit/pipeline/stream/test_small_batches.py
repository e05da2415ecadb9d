"""Small batches: every host's slices are matched once, whatever the number of tasks, and too many matches are left."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.workload import expected, filters, rows

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log.blocks import LogBatch
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.cluster.assignment import SliceAssignment
from lavant.pipeline.operators.access import AccessBlock, encode_range
from lavant.pipeline.operators.exchange import MatchedBlock
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.operators.tasks import ExitTask, exit_blocks
from lavant.pipeline.stream.sinks import read_part
from lavant.pipeline.stream.small_batches import AccessedBlock, BatchPlan, match_small

SLICES = 5
TEXTS = dict(enumerate(filters(200)))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SliceReader:
    store = SliceStore.create(tmp_path_factory.mktemp("store") / "subscriptions", slices=SLICES)
    store.add(range(200), filters(200))
    return SliceReader(store.directory)


def plan_of(reader: SliceReader, hosts: int, slices: int = SLICES, task_rows: int = 1) -> BatchPlan:
    matching = SliceAssignment.even(slices, hosts).matching
    return BatchPlan(
        store=SlicePlace(reader.address, reader.identity, "plain"),
        hosts=tuple(host.match for _, host in matching),
        small_rows_max=100,
        rows_max=1000,
        task_rows=task_rows,
    )


def block_of(publications: list[dict[str, object]]) -> AccessBlock:
    records = PublicationBatch.from_dicts(publications).records
    return encode_range("plain", "log", 7, [LogBatch(7, records)])


@settings(deadline=None, max_examples=40)
@given(hosts=st.integers(1, SLICES), count=st.integers(1, 30), task_rows=st.integers(1, 40), seed=st.integers(0, 99))
def test_what_the_tasks_find_together_is_what_brute_force_says(
    reader: SliceReader, tmp_path_factory: pytest.TempPathFactory, hosts: int, count: int, task_rows: int, seed: int
) -> None:
    publications = rows(count, seed=seed)
    parts = plan_of(reader, hosts, task_rows=task_rows).tasks(count)
    assert len(parts) == min(hosts, max(1, count // task_rows))
    returned = [msgspec.msgpack.encode(match_small(tasks, block_of(publications), 10**6)) for tasks in parts]
    accessed = [msgspec.msgpack.decode(each, type=AccessedBlock) for each in returned]
    assert sum(len(each.found) for each in accessed) == hosts
    version = accessed[0].version
    assert version is not None
    out = tmp_path_factory.mktemp("out")
    place = SlicePlace(reader.address, reader.identity, "plain")
    task = ExitTask(store=place, version=version, host=0, slices=(), output=str(out), part="part.parquet")
    report = exit_blocks(task, [MatchedBlock.from_bytes(found) for each in accessed for found in each.found])
    table = read_part_in(out, report.part.name) if report.part.rows else {}
    assert table == expected(TEXTS, publications)


def read_part_in(directory: Path, name: str) -> dict[str, list[int]]:
    from lavant.broker.storage.objects import open_storage
    from lavant.pipeline.operators.parts import Part

    found = read_part(open_storage(directory), Part(name)).to_pylist()
    return {row["id"]: sorted(row["subscriptions"]) for row in found}


def test_a_batch_with_too_many_matches_keeps_its_content_for_the_long_way(reader: SliceReader) -> None:
    [tasks] = plan_of(reader, 1).tasks(30)
    block = block_of(rows(30))
    matches = sum(len(ids) for ids in expected(TEXTS, rows(30)).values())
    assert match_small(tasks, block, matches).found
    left = match_small(tasks, block, matches - 1)
    assert (left.found, left.too_much, left.block) == ([], True, block)


def test_a_plan_is_for_small_batches_and_for_the_slices_that_there_are(reader: SliceReader, tmp_path: Path) -> None:
    plan = plan_of(reader, 2)
    assert plan.tasks(100)
    assert plan.tasks(101) == []
    assert plan_of(reader, 2, slices=SLICES + 1).tasks(10) == []
    assert BatchPlan.load(tmp_path / "plan") is None
    plan.save(tmp_path / "plan")
    assert BatchPlan.load(tmp_path / "plan") == plan
