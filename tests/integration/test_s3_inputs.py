"""Inputs and outputs of a stream at URIs: read through storage, made below the output, and refused without a trace."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.object_store import ObjectStore
from tests.property.object_stores import ACCESS_KEY, s3_uri

from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.objects import open_storage
from lavant.broker.storage.objects.files import StoredFile
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.cluster.coordination import FileCoordination
from lavant.pipeline.stream.preparation import Prepared, prepare


class Bucket:
    """Files at URIs, and an output."""

    def __init__(self, server: ObjectStore, name: str) -> None:
        self.root = s3_uri(server, name)
        self.storage = open_storage(self.root)
        self.output = self.uri("an output")

    def uri(self, name: str) -> str:
        return self.storage.below(name).address

    def write(self, name: str, content: str | bytes) -> str:
        self.storage.write(name, [content.encode() if isinstance(content, str) else content])
        return self.uri(name)

    def prepare(self, subscriptions: Any, publications: Any, output: Any = None) -> Prepared:
        where = self.output if output is None else output
        return prepare(subscriptions, publications, where, scheme="plain", slices=2)


@pytest.fixture
def bucket(objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv("LAVANT_CACHE", str(tmp_path / "cache"))
    return Bucket(objects, tmp_path.name)


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def counts(prepared: Prepared) -> tuple[int, int]:
    return SliceReader(prepared.store).version().subscriptions, LogReader(prepared.log).end()


GOOD = '{"id": 1, "filter": "x = 1"}\n{"id": 2, "filter": "x > 1"}\n'


def test_files_at_uris_are_loaded_below_the_output_s_uri(bucket: Bucket) -> None:
    subscriptions = bucket.write("in put/s%.jsonl", GOOD)
    bucket.write("events/1.parquet", parquet(x=list(range(5000))))
    bucket.write("events/2.jsonl", '{"x": 1}\nno\n{"x": 2}\n')
    bucket.write("events/_other.txt", "nothing")
    first = bucket.prepare(subscriptions, bucket.uri("events"))
    assert counts(first) == (2, 5002)
    assert len(first.refused) == 1
    made = {name.split("/")[0] for name in open_storage(bucket.output).names()}
    assert made == {"work", "rejected.jsonl"}
    assert bucket.prepare(subscriptions, bucket.uri("events")) == first
    bucket.write("events/3.jsonl", '{"x": 1}\n')
    with pytest.raises(InvalidValue, match=r"an%20output.* holds the results of other inputs"):
        bucket.prepare(subscriptions, bucket.uri("events"))


def test_local_files_and_uris_mix(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text(GOOD)
    publications = bucket.write("p.jsonl", '{"x": 1}\n')
    assert counts(bucket.prepare(tmp_path / "s.jsonl", publications)) == (2, 1)
    assert counts(bucket.prepare(tmp_path / "s.jsonl", publications, tmp_path / "out")) == (2, 1)
    assert (tmp_path / "out" / "work" / "inputs.json").exists()


def test_a_store_and_a_log_at_uris_are_used_as_they_are(bucket: Bucket) -> None:
    SliceStore.create(bucket.uri("store"), slices=3).add([7], ["x = 1"])
    with LogWriter(bucket.uri("log")) as log:
        log.append(PublicationBatch.from_dicts([{"x": 1}]).records)
    prepared = bucket.prepare(bucket.uri("store"), bucket.uri("log"))
    assert (prepared.store, prepared.log) == (bucket.uri("store"), bucket.uri("log"))
    assert bucket.storage.names("an output/") == ["an output/rejected.jsonl", "an output/work/inputs.json"]
    SliceStore.open(bucket.uri("store")).add([8], ["x = 2"])
    assert counts(bucket.prepare(bucket.uri("store"), bucket.uri("log"))) == (2, 1)


@pytest.mark.parametrize(
    ("subscriptions", "publications", "message"),
    [
        ('{"id": 1, "filter": "x >"}\n', '{"x": 1}\n', r"s\.jsonl.*, subscription 1: expected a value"),
        (GOOD, "no\n", r"p\.jsonl.*: all 1 publications were refused"),
    ],
)
def test_an_input_that_is_refused_leaves_nothing(
    bucket: Bucket, subscriptions: str, publications: str, message: str
) -> None:
    given = bucket.write("s.jsonl", subscriptions), bucket.write("p.jsonl", publications)
    with pytest.raises(InvalidValue, match=message) as failure:
        bucket.prepare(*given)
    assert ACCESS_KEY not in str(failure.value)
    assert bucket.storage.names("an output") == []
    given = bucket.write("s.jsonl", GOOD), bucket.write("p.jsonl", '{"x": 1}\n')
    assert counts(bucket.prepare(*given)) == (2, 1)


def test_what_is_not_there_is_named_without_secrets(bucket: Bucket) -> None:
    given = bucket.write("s.jsonl", GOOD)
    for missing, message in (
        (bucket.uri("p.jsonl"), r"there is no file s3://\*\*\*@lavant/.*p\.jsonl"),
        (bucket.uri("p.jsonl").replace("@lavant/", "@no-such/"), r"s3://\*\*\*@no-such/.*bucket does not exist"),
        ("foo://host/p.jsonl", "there is no storage foo://"),
    ):
        with pytest.raises((InvalidValue, MissingComponent), match=message) as failure:
            bucket.prepare(given, missing)
        assert ACCESS_KEY not in str(failure.value)
    bucket.write("other/readme.txt", "nothing")
    with pytest.raises(InvalidValue, match=r"other.* holds no \.jsonl, .* or \.parquet file"):
        bucket.prepare(given, bucket.uri("other"))


def test_a_file_is_read_by_ranges(bucket: Bucket) -> None:
    content = bytes(range(256)) * 20_000
    with StoredFile.at(bucket.write("big", content)).open() as file:
        assert file.read(10) == content[:10]
        file.seek(-7, io.SEEK_END)
        assert file.read() == content[-7:]
        file.seek(3_000_001)
        assert file.read(2_000_000) == content[3_000_001:5_000_001]
        assert file.tell() == 5_000_001


def test_the_manager_s_state_lives_at_a_uri(bucket: Bucket) -> None:
    state = FileCoordination(bucket.uri("control"))
    assert state.get("placement") is None
    state.put("placement", b"1")
    state.put("placement", b"second")
    assert FileCoordination(bucket.uri("control")).get("placement") == b"second"
