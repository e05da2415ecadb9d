"""The log as the source of a stream, as the driver asks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from lavant.broker.storage.log import LogWriter
from lavant.core.publications.batch import PublicationBatch
from lavant.pipeline.stream import block_source
from lavant.pipeline.stream.block_source import BlockStreamReader

LIMIT = ReadMaxRows(100)


def append(tmp_path: Path, count: int) -> None:
    with LogWriter(tmp_path / "log", durable=False) as log:
        log.append(
            PublicationBatch.from_dicts([{"id": f"e{number}", "price": number} for number in range(count)]).records
        )


def reader(tmp_path: Path) -> BlockStreamReader:
    places = {"path": str(tmp_path / "log"), "plan": str(tmp_path / "plan")}
    return BlockStreamReader({**places, "scheme": "plain", "rowsMax": "100"})


@pytest.fixture
def while_it_waits(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens, one each time that the source waits; then the time is up."""
    events: list[Callable[[], None]] = []
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        if events:
            events.pop(0)()
        else:
            now_s[0] += block_source.WAIT_S

    monkeypatch.setattr(block_source, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0]))
    return events


def test_what_is_there_is_offered_at_once(tmp_path: Path, while_it_waits: list[Callable[[], None]]) -> None:
    append(tmp_path, 150)
    source = reader(tmp_path)
    while_it_waits.append(lambda: pytest.fail("it waited"))
    first = source.latestOffset(source.initialOffset(), LIMIT)
    assert first["offset"] == 100
    assert source.latestOffset(first, LIMIT)["offset"] == 150


def test_the_source_waits_for_something_new_and_offers_it(
    tmp_path: Path, while_it_waits: list[Callable[[], None]]
) -> None:
    append(tmp_path, 3)
    source = reader(tmp_path)
    end = source.latestOffset(source.initialOffset(), LIMIT)
    while_it_waits += [lambda: None, lambda: append(tmp_path, 2), lambda: pytest.fail("it waited longer than it must")]
    assert source.latestOffset(end, LIMIT)["offset"] == 5


def test_the_wait_ends_without_anything_new(tmp_path: Path, while_it_waits: list[Callable[[], None]]) -> None:
    append(tmp_path, 3)
    source = reader(tmp_path)
    end = source.latestOffset(source.initialOffset(), LIMIT)
    while_it_waits += [lambda: None]
    assert source.latestOffset(end, LIMIT) == end
    assert not while_it_waits


def test_a_stream_of_what_is_available_now_never_waits(
    tmp_path: Path, while_it_waits: list[Callable[[], None]]
) -> None:
    append(tmp_path, 3)
    source = reader(tmp_path)
    source.prepareForTriggerAvailableNow()
    end = source.latestOffset(source.initialOffset(), LIMIT)
    while_it_waits.append(lambda: pytest.fail("it waited"))
    assert source.latestOffset(end, LIMIT) == end
