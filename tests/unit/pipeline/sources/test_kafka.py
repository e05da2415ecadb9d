"""Kafka without a broker: addresses, options, and what a task makes of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lavant.broker.filters import Filter
from lavant.broker.matching.encrypted.values import EncryptedFilters
from lavant.broker.slices import SliceReader, SliceStore
from lavant.cli import commands
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.pipeline.operators.open_slices import SlicePlace
from lavant.pipeline.sources.kafka import records as kafka_records
from lavant.pipeline.sources.kafka.connector import connector_settings
from lavant.pipeline.sources.kafka.records import SCHEMA, TopicMatch, match_function
from lavant.pipeline.sources.kafka.topics import (
    KafkaTopic,
    check_topics,
    client_options,
    parse_options,
    source_options,
    without_secrets,
)

FILTERS = {1: "a > 3", 2: "a < 2 or b = 'x'", 3: "not exists(a)", 4: "true"}


def store(path: Path) -> SliceStore:
    made = SliceStore.create(path, slices=3)
    made.add(list(FILTERS), list(FILTERS.values()))
    return made


def matched(store: SliceStore, given: Sequence[tuple[bytes | None, bytes | None]], **more: Any) -> list[dict[str, Any]]:
    """The records that a task makes of records of two partitions."""
    keys, values = zip(*given, strict=True)
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["in"] * len(given),
            "partition": pa.array([row % 2 for row in range(len(given))], pa.int32()),
            "offset": pa.array([row // 2 for row in range(len(given))], pa.int64()),
        }
    )
    read = SliceReader(store.directory)
    place = SlicePlace(str(store.directory), read.identity, read.settings.scheme)
    settings = TopicMatch(place, "out", more.get("rejected_topic", "out"))
    made = list(match_function(settings)([batch]))
    assert all(each.schema == SCHEMA for each in made)
    rows = [row for each in made for row in each.to_pylist()]
    found = [{"to": row["topic"], "key": row["key"], **json.loads(row["value"])} for row in rows]
    assert [row["rejected"] for row in rows] == ["rejected" in each for each in found]
    return found


def test_records_get_what_their_filters_say(tmp_path: Path) -> None:
    random = Random(4)
    drawn: list[dict[str, Any]] = [
        {"a": random.choice([1, 2.5, 4, True, "x"]), "b": random.choice(["x", "y"])} for _ in range(300)
    ]
    found = matched(store(tmp_path), [(None, json.dumps(row).encode()) for row in drawn])
    assert [(each["partition"], each["offset"]) for each in found] == [(row % 2, row // 2) for row in range(300)]
    for row, each in zip(drawn, found, strict=True):
        assert sorted(each["subscriptions"]) == [id for id, text in FILTERS.items() if Filter.parse(text).matches(row)]


@pytest.mark.parametrize("slices", [1, 7])
def test_a_store_may_have_another_number_of_slices_by_now(tmp_path: Path, slices: int) -> None:
    made = store(tmp_path)
    before = matched(made, [(None, b'{"a": 4, "b": "x"}')])
    made.reslice(slices)
    [after] = matched(made, [(None, b'{"a": 4, "b": "x"}')])
    assert sorted(after["subscriptions"]) == sorted(before[0]["subscriptions"])


def test_the_key_is_the_id_unless_the_value_has_one(tmp_path: Path) -> None:
    given: list[tuple[bytes | None, bytes | None]] = [
        *[(b"k1", b'{"@id": "v1"}'), (b"k2", b"{}"), (None, b'{"@id": null}')],
        *[(b"\xff", b"{}"), (b"", b"{}"), (b"k" * 129, b"{}"), (b"a\nb", b"{}")],
    ]
    found = matched(store(tmp_path), given)
    assert [each.get("id") for each in found] == ["v1", "k2", *[None] * 5]
    assert [each["key"] for each in found[:3]] == [b"k1", b"k2", b"in-0"]


def test_refused_records_say_why_and_keep_their_place(tmp_path: Path) -> None:
    given = [(None, b"{}"), (b"k", b"nonsense"), (b"k", None), (None, b'{"a": [1]}'), (None, b"{}")]
    found = matched(store(tmp_path), given, rejected_topic="refused")
    assert [each["to"] for each in found] == ["out", "refused", "refused", "refused", "out"]
    assert [each.get("rejected") is not None for each in found] == [False, True, True, True, False]
    assert found[2]["rejected"] == "the record has no value"
    assert [each.get("id") for each in found] == [None, "k", "k", None, None]


def test_a_long_list_of_subscriptions_takes_several_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_records, "IDS_OF_A_RECORD_MAX", 2)
    found = matched(store(tmp_path), [(None, b'{"a": 1}'), (None, b'{"b": "x"}')])
    assert [(each.get("part"), each.get("parts"), len(each["subscriptions"])) for each in found] == [
        *[(None, None, 2), (0, 2, 2), (1, 2, 1)]
    ]
    assert sorted(found[1]["subscriptions"] + found[2]["subscriptions"]) == [2, 3, 4]


def test_encrypted_records_have_points_and_others_are_refused(tmp_path: Path) -> None:
    encrypted = SliceStore.create(tmp_path, scheme="encrypted", slices=2)
    tests = np.array([[[1.0, 0.0, 0.0]], [[-1.0, 0.0, 0.0]]])
    encrypted.add([1, 2], EncryptedFilters(tests))
    given = [
        *[(None, b'{"@id": "p", "@point": [2, 1.5, 1]}'), (None, b'{"@point": [-2.0, 1.5, 1]}')],
        *[(None, b'{"@point": [1, 2]}'), (None, b'{"@point": "x"}'), (None, b'{"a": 1}')],
    ]
    found = matched(encrypted, given)
    assert [each.get("subscriptions") for each in found[:2]] == [[1], [2]]
    assert [each.get("rejected") is not None for each in found] == [False, False, True, True, True]


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://",
        "kafka://h",
        "kafka://h/",
        "kafka://h:x/t",
        "kafka:/h/t",
        "kafka://h/a/b",
        "kafka:///t",
        "kafka://h,/t",
    ],
)
def test_what_names_no_topic_is_refused(uri: str) -> None:
    with pytest.raises(InvalidValue, match="names no topic of Kafka"):
        KafkaTopic.parse(uri)


def test_options_go_to_the_side_that_knows_them(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text("secret text\n")
    options = parse_options(
        ["kafka.security.protocol=SSL", f"sasl.jaas.config=@{tmp_path / 'jaas'}", "startingOffsets=latest", "x==y"]
    )
    assert client_options(options) == {
        "kafka.security.protocol": "SSL",
        "kafka.sasl.jaas.config": "secret text",
        "kafka.x": "=y",
    }
    assert source_options(options) == {"startingOffsets": "latest"}
    in_any_case = parse_options(["STARTINGOFFSETS=latest", "failondataloss=false", "Client.Id=x"])
    assert source_options(in_any_case) == {"startingOffsets": "latest", "failOnDataLoss": "false"}
    assert client_options(in_any_case) == {"kafka.Client.Id": "x"}
    for given in ("security.protocol", "=x"):
        with pytest.raises(InvalidValue, match="has no value"):
            parse_options([given])
    with pytest.raises(InvalidValue, match=r"cannot read .*nothing: No such file"):
        parse_options([f"a=@{tmp_path / 'nothing'}"])
    one, two = KafkaTopic("127.0.0.1:1", "one"), KafkaTopic("127.0.0.1:1", "two")
    with pytest.raises(InvalidValue, match="out of order"):
        check_topics(one, two, None, parse_options(["minpartitions=8"]))
    with pytest.raises(InvalidValue, match="'endingOffsets' cannot be set: a stream has no end; --available-now"):
        check_topics(one, two, None, parse_options(["endingOffsets=latest"]))
    with pytest.raises(InvalidValue, match="both input and output"):
        check_topics(one, two, "one", {})
    with pytest.raises(MissingComponent, match="no Kafka broker answers"):
        check_topics(one, two, None, {})


def test_messages_show_no_secret() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="pw1";'
    options = {"sasl.jaas.config": jaas, "ssl.key.password": "short", "security.protocol": "SASL_SSL"}
    shown = without_secrets(f"SASL_SSL failed for {jaas}, pw1 and short", options)
    assert shown == "SASL_SSL failed for ***, *** and ***"


def test_jars_that_are_not_there_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAVANT_KAFKA_JARS", str(tmp_path))
    with pytest.raises(MissingComponent, match="where there are no jars"):
        connector_settings()
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    assert connector_settings() == {"spark_jars": f"{tmp_path / 'a.jar'},{tmp_path / 'b.jar'}"}
    monkeypatch.delenv("LAVANT_KAFKA_JARS")
    assert connector_settings() == {}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--input", "kafka://h/a", "--output", "out"), "Kafka is only one side of this stream"),
        (("--input", "in.jsonl", "--output", "kafka://h/a"), "Kafka is only one side of this stream"),
        (("--input", "in.jsonl", "--output", "out", "--available-now"), "are for streams of Kafka"),
        (("--input", "kafka://h/a", "--output", "kafka://h/b"), "needs --work"),
        (("--input", "kafka://h", "--output", "kafka://h/b"), "names no topic"),
    ],
)
def test_the_command_refuses_what_does_not_fit_together(arguments: tuple[str, ...], line: str) -> None:
    ended = CliRunner().invoke(commands, ["stream", "--subscriptions", "s.jsonl", *arguments])
    assert ended.exit_code != 0
    assert line in f"{ended.output} {ended.exception}"
