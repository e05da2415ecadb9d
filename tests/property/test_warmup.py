"""After a warm-up, nothing that a server or a worker matches needs a kernel of a kind that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from tests.property.test_plain_matching import ATTRIBUTES, STRINGS, random_filter

from lavant.broker.matching import EncryptedMatcher, PlainMatcher
from lavant.broker.matching.encrypted.values import ATTRIBUTES_MAX, EncryptedBatch, EncryptedFilters
from lavant.broker.matching.interface import Matches
from lavant.broker.matching.merge import merge
from lavant.broker.matching.runs import Runs
from lavant.broker.protocol.subscriptions import EncryptedFilter, SubscriptionState
from lavant.broker.subscriptions.parsing import ENCRYPTED, PLAIN, ParsedPublication
from lavant.broker.subscriptions.registry import Added, Removed
from lavant.broker.warmup import BROKER_KERNELS
from lavant.core.kernels.kernels import KERNELS
from lavant.core.kernels.warmup import warm_up
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.row_batch import RowBatch
from lavant.models.evaluation import Model
from lavant.models.network import ModelJobType, Network, Topic
from lavant.models.prediction import predict
from lavant.models.warmup import MODEL_KERNELS
from lavant.pipeline.operators.exchange import MatchedBlock, SegmentKey, merge_blocks
from lavant.pipeline.warmup import PIPELINE_KERNELS
from lavant.service.engines.filters import change_batches, prepared_filter
from lavant.service.engines.interface import EngineBatch
from lavant.service.engines.local import LocalEngine

Kinds = set[tuple[str, str]]


def kinds() -> Kinds:
    """Which kernels are there, compiled or loaded, and for which types."""
    return {
        (f"{kernel.py_func.__module__}.{kernel.py_func.__name__}", str(types))
        for kernel in KERNELS
        for types in kernel.signatures
    }


@pytest.fixture(autouse=True)
def nothing_new() -> Iterator[None]:
    warm_up([*BROKER_KERNELS, MODEL_KERNELS, PIPELINE_KERNELS])
    there = kinds()
    yield
    assert kinds() - there == set()


def random_publication(random: Random) -> dict[str, AttributeValue]:
    values: list[AttributeValue] = [*range(20), *STRINGS, 0.5, True]
    return {name: random.choice(values) for name in random.sample(ATTRIBUTES, random.randint(0, len(ATTRIBUTES)))}


def batches(random: Random, publications: int) -> Iterator[PublicationBatch]:
    rows = [random_publication(random) for _ in range(publications)]
    yield PublicationBatch.from_dicts(rows)
    yield cast(PublicationBatch, RowBatch(rows))  # it does all that a matcher asks for
    records = pa.RecordBatch.from_pylist([{"n": i, "s": f"text {i}"} for i in range(publications)])
    yield PublicationBatch(records)
    yield PublicationBatch(records.slice(1))


@pytest.mark.parametrize("seed", range(4))
def test_plain_matchers_that_grow_shrink_and_move(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    matcher, ids = PlainMatcher(), 0
    for count in (1, 1, 3, 90, 700):
        matcher.add(range(ids, ids + count), [random_filter(random) for _ in range(count)])
        ids += count
        matcher.remove([ids - 1])
        joined = matcher.joining()
        if joined is not None and random.random() < 0.5:
            joined()
        matcher.snapshot(tmp_path)
        opened, copied = PlainMatcher.open(tmp_path), PlainMatcher.from_bytes(matcher.to_bytes())
        for mapped in (opened, copied):
            mapped.remove([ids - 2] if count > 1 else [])
            mapped.add([10_000], ["s like 'text%' and a0 in (1, 2)"])
            for _ in range(5):
                mapped.add([10_001 + len(mapped)], [random_filter(random)])
        for publications in (1, 3, 40):
            for batch in batches(random, publications):
                merge([each.match(batch) for each in (matcher, opened, copied)])


def test_encrypted_matchers_of_all_dimensions(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    for attributes in range(1, ATTRIBUTES_MAX + 1):
        matcher = EncryptedMatcher()
        for first, count in ((0, 1), (1, 40), (41, 300)):
            matcher.add(range(first, first + count), EncryptedFilters(chance.normal(size=(count, 2, attributes + 1))))
        matcher.remove([0, 5])
        matcher.snapshot(tmp_path / str(attributes))
        opened = EncryptedMatcher.open(tmp_path / str(attributes))
        opened.remove([7])
        for publications in (1, 4, 7, 300):
            batch = EncryptedBatch(chance.normal(size=(publications, attributes + 1)))
            merge([matcher.match(batch), opened.match(batch)])


def subscriptions(random: Random) -> Iterator[SubscriptionState]:
    for number in range(150):
        filter: str | EncryptedFilter = random_filter(random)
        if number % 3 == 0:
            filter = EncryptedFilter(4, np.array([random.uniform(-1, 1) for _ in range(6 * 4)]).tobytes())
        yield SubscriptionState(number, f"s{number}", "", filter, f"q{number}", True, None, 0)


@pytest.mark.parametrize("slices", [1, 3])
def test_an_engine_whose_subscriptions_come_and_go(slices: int) -> None:
    random = Random(slices)
    engine = LocalEngine(slices, quiet_s=0.001)
    there = list(subscriptions(random))
    try:
        for some in (there[:1], there[1:3], there[3:]):
            prepared = {each.number: prepared_filter(each.filter) for each in some} if len(some) < 3 else {}
            engine.change(list(change_batches([Added(each, each.number % 7) for each in some], prepared)))
            for publications in (1, 50):
                plain = [ParsedPublication("", PLAIN, random_publication(random), b"") for _ in range(publications)]
                points = [
                    ParsedPublication("", ENCRYPTED, [random.uniform(-1, 1) for _ in range(4)], b"")
                    for _ in range(publications)
                ]
                for scheme, accepted in ((PLAIN, plain), (ENCRYPTED, points)):
                    engine.publish(EngineBatch(namespace="", scheme=scheme, publications=accepted))
            engine.change(list(change_batches([Removed(each) for each in some[::2]], {})))
    finally:
        engine.close()


def test_what_the_hosts_of_a_batch_have_found() -> None:
    row_ids = np.arange(10, dtype=np.uint32)
    for offsets, ids in (([0, 2, 2, 3], [5, 6, 7]), ([0], [])):
        rest = Matches(np.array(offsets), np.array(ids, np.uint32))
        some = np.arange(len(offsets) - 1, dtype=np.uint32)
        runs = [(SegmentKey(0, 0), Runs(some, some, some + np.uint32(1)))]
        block = MatchedBlock(0, len(some), 0, runs, rest, [], None, [])
        merge_blocks([block, MatchedBlock.from_bytes(block.to_bytes())], lambda _: row_ids)


def test_predictions() -> None:
    jobs = (
        ModelJobType.along(["A", "B", "A"], name="1", arrival_rate_per_s=2.0),
        ModelJobType.along(["B"], name="2", arrival_rate_per_s=1.0),
    )
    topics = (Topic(name="A", service_rate_per_s=1.0), Topic(name="B", service_rate_per_s=2.0, service_scv=0.0))
    for refined in (False, True):
        model = Model(Network(topics=topics, jobs=jobs), refined=refined)
        predict(model, [9, 9])
        model.evaluate([[9, 9], [9, 8]], arrival_rates_per_s=[[1, 2], [2, 3]], service_rates_per_s=[[1.0, 1.0]])
