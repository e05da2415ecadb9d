"""The publisher of applications: real threads and files, transports in memory."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.integration.publishing import Recorder, publication
from tests.integration.small_disks import SmallDisk, small_file_system

from lavant.broker.storage.journal import JournalConfig
from lavant.client.publisher import Publisher, PublisherConfig, TuningConfig
from lavant.control.publishing import CONTROLLERS
from lavant.core.errors import (
    InvalidValue,
    LavantError,
    LimitExceeded,
    NotPublished,
    Overloaded,
    PartlyRefused,
    PublisherClosed,
    StorageFailed,
    StorageLocked,
)
from lavant.core.publications.publication import Publication

WAIT_S = 60.0
QUICK = PublisherConfig(workers=5, workers_reserved=1, backoff_s_min=0.001, backoff_s_max=0.004)
SMALL = JournalConfig(segment_bytes=64 << 10, compaction_bytes_min=128 << 10)


def eventually(happens: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not happens():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
def test_everything_is_published_once_from_many_threads(controller: str, tmp_path: Path) -> None:
    tuning = TuningConfig(controller=controller, batch_size=50, poll_s=0.001, poll_s_min=0.001, poll_s_max=0.005)
    transport = Recorder()
    config = PublisherConfig(tuning=tuning, workers=5, workers_reserved=1, wait_s_max=0.005)
    with Publisher(transport, tmp_path, config, journal=SMALL) as publisher:

        def publish(first: int) -> None:
            for number in range(first, first + 500):
                assert publisher.publish(publication(number, 100), wait_s=WAIT_S)

        threads = [Thread(target=publish, args=(first,)) for first in range(0, 2000, 500)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(transport.ids) == Counter(map(str, range(2000)))
    figures = publisher.statistics()
    assert (figures.received, figures.stored, figures.published) == (2000, 2000, 2000)
    assert (figures.dropped, figures.waiting, figures.buffered, figures.retries) == (0, 0, 0, 0)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 10 * SMALL.segment_bytes


def test_publications_without_an_id_get_one_that_stays(tmp_path: Path) -> None:
    transport = Recorder(is_open=False)
    with Publisher(transport, tmp_path) as publisher:
        for _ in range(10):
            publisher.publish(Publication(attributes={"a": 1}))
        assert publisher.flush(WAIT_S)
        publisher.close(0)
    again = Recorder()
    with Publisher(again, tmp_path):
        pass
    transport.is_open.set()
    assert len(set(again.ids)) == len(again.ids) == 10
    assert "" not in again.ids


@pytest.mark.parametrize("seed", range(2))
def test_everything_stored_is_published_after_kill_9(seed: int, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    command = [sys.executable, "-m", "tests.integration.publishing", str(tmp_path / "store"), str(taken)]
    stored = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            stored = int(line.removeprefix("stored "))
            if stored >= 1000 * (seed + 1):
                process.kill()
                break
        for line in process.stdout:  # what it had said before it was gone
            stored = int(found[1]) if (found := re.fullmatch(r"stored (\d+)\n", line)) else stored
    transport = Recorder()
    with Publisher(transport, tmp_path / "store") as publisher:
        assert publisher.close(WAIT_S)
    before = taken.read_text().split() if taken.exists() else []
    assert {str(number) for number in range(1, stored + 1)} <= {*before, *transport.ids}
    assert len(transport.ids) == len(set(transport.ids)) == publisher.statistics().recovered


def test_nothing_is_lost_when_the_journal_is_folded_while_publications_come(tmp_path: Path) -> None:
    transport = Recorder(is_open=False)
    with Publisher(transport, tmp_path, journal=SMALL) as publisher:
        for number in range(1500):
            assert publisher.publish(publication(number, 300), wait_s=WAIT_S)
        assert publisher.flush(WAIT_S)
        publisher.close(0)
    assert any(file.name.startswith("snapshot") for file in tmp_path.iterdir())
    again = Recorder()
    with Publisher(again, tmp_path, journal=SMALL) as publisher:
        assert publisher.close(WAIT_S)
    transport.is_open.set()
    assert sorted(map(int, again.ids)) == list(range(1500))


def test_the_store_soon_knows_what_was_published_without_being_closed(tmp_path: Path) -> None:
    publisher = Publisher(Recorder(), tmp_path / "store")
    publisher.publish(publication(1))
    assert publisher.flush(WAIT_S)

    def left_by_a_crash() -> int:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "store", copy)
        with Publisher(Recorder(is_open=False), copy) as left:
            left.close(0)
        shutil.rmtree(copy)
        return left.statistics().recovered

    eventually(lambda: left_by_a_crash() == 0)
    publisher.close()


def test_what_could_not_be_published_waits_for_the_next_publisher(tmp_path: Path) -> None:
    def fail(batch: list[Publication]) -> None:
        raise NotPublished("503", retry_after_s=0.001)

    transport = Recorder(act=fail)
    publisher = Publisher(transport, tmp_path, QUICK)
    for number in range(100):
        assert publisher.publish(publication(number))
    assert publisher.flush(WAIT_S)
    eventually(lambda: publisher.statistics().retries >= 200)
    assert not publisher.close(0.01)
    figures = publisher.statistics()
    assert (figures.published, figures.waiting) == (0, 100)
    assert transport.ids == []
    again = Recorder()
    with Publisher(again, tmp_path) as publisher:
        assert publisher.close(WAIT_S)
    assert sorted(again.ids, key=int) == [str(number) for number in range(100)]


def test_whatever_a_transport_raises_nothing_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [
        ConnectionError("reset"),
        KeyError("a mistake"),
        NotPublished("429", retry_after_s=0.002),
    ]

    def fail_at_first(batch: list[Publication]) -> None:
        if errors:
            raise errors.pop()

    transport = Recorder(act=fail_at_first)
    with Publisher(transport, tmp_path, QUICK) as publisher:
        publisher.publish(publication(1))
        assert publisher.close(WAIT_S)
    assert transport.ids == ["1"]
    assert publisher.statistics().failures == 3
    said = [record.message for record in caplog.records]
    assert sum("is retried until it succeeds: 429" in message for message in said) == 1
    assert said[-1] == "the broker takes publications again"


def test_what_is_refused_for_good_is_told_and_not_sent_again(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []

    def refuse_odd_ones(batch: list[Publication]) -> None:
        odd: dict[int, LavantError] = {
            place: InvalidValue(f"{one.id} is odd") for place, one in enumerate(batch) if int(one.id) % 2
        }
        if odd:
            raise PartlyRefused(odd)

    def on_refused(refused: Publication, error: LavantError) -> None:
        told.append((refused.id, str(error)))
        raise RuntimeError("a mistake of the application's")

    transport = Recorder(act=refuse_odd_ones)
    one_worker = PublisherConfig(workers=2, workers_reserved=1)
    with Publisher(transport, tmp_path, one_worker, on_refused=on_refused) as publisher:
        for number in range(20):
            publisher.publish(publication(number))
            assert publisher.flush(WAIT_S)  # so that there are several transfers
        assert publisher.close(WAIT_S)
    assert sorted(told) == sorted((str(number), f"{number} is odd") for number in range(1, 20, 2))
    figures = publisher.statistics()
    assert (figures.published, figures.refused, figures.waiting) == (20, 10, 0)
    with Publisher(Recorder(), tmp_path) as publisher:
        assert publisher.statistics().recovered == 0


def test_what_is_refused_for_the_moment_is_sent_again(tmp_path: Path) -> None:
    refusals: list[dict[int, LavantError]] = [{0: Overloaded("come later")}]

    def refuse_at_first(batch: list[Publication]) -> None:
        if refusals:
            raise PartlyRefused(refusals.pop())

    transport = Recorder(act=refuse_at_first)
    with Publisher(transport, tmp_path, QUICK) as publisher:
        publisher.publish(publication(1))
        assert publisher.close(WAIT_S)
    assert transport.ids == ["1"]
    figures = publisher.statistics()
    assert (figures.published, figures.refused, figures.failures) == (1, 0, 1)


def blocked(tmp_path: Path) -> tuple[Publisher, Recorder]:
    """One that holds three publications, and has no room for a fourth."""
    transport = Recorder(is_open=False)
    config = PublisherConfig(workers=2, workers_reserved=1, buffer_max=2, stored_max=1)
    publisher = Publisher(transport, tmp_path, config)
    assert publisher.publish(publication(0))
    assert publisher.flush(WAIT_S)
    assert publisher.publish(publication(1))
    assert publisher.publish(publication(2))
    return publisher, transport


def test_without_room_a_publication_is_dropped_and_counted(tmp_path: Path) -> None:
    publisher, transport = blocked(tmp_path)
    assert not publisher.publish(publication(3))
    assert not publisher.publish(publication(4), wait_s=0.001)
    transport.is_open.set()
    assert publisher.close(WAIT_S)
    assert sorted(transport.ids) == ["0", "1", "2"]
    figures = publisher.statistics()
    assert (figures.received, figures.dropped, figures.published) == (3, 2, 3)


def test_without_room_a_caller_may_wait_for_it(tmp_path: Path) -> None:
    publisher, transport = blocked(tmp_path)
    results: list[bool] = []
    waiting = Thread(target=lambda: results.append(publisher.publish(publication(3), wait_s=WAIT_S)))
    waiting.start()
    transport.is_open.set()
    waiting.join()
    assert publisher.close(WAIT_S)
    assert results == [True]
    assert sorted(transport.ids) == ["0", "1", "2", "3"]


def test_closing_wakes_those_who_wait_for_room(tmp_path: Path) -> None:
    publisher, transport = blocked(tmp_path)
    errors: list[type[Exception]] = []

    def publish() -> None:
        try:
            publisher.publish(publication(3), wait_s=WAIT_S)
        except PublisherClosed as error:
            errors.append(type(error))

    waiting = Thread(target=publish)
    waiting.start()
    assert not publisher.close(0.01)
    waiting.join()
    assert errors == [PublisherClosed]
    with pytest.raises(PublisherClosed):
        publisher.publish(publication(4))
    transport.is_open.set()


def test_a_publication_that_no_segment_holds_is_refused(tmp_path: Path) -> None:
    with Publisher(Recorder(), tmp_path, journal=SMALL) as publisher:
        with pytest.raises(LimitExceeded, match="publication 1 has 70"):
            publisher.publish(publication(1, 70_000))
        assert publisher.publish(publication(2, 60_000))


def test_a_directory_belongs_to_one_publisher(tmp_path: Path) -> None:
    with Publisher(Recorder(), tmp_path), pytest.raises(StorageLocked):
        Publisher(Recorder(), tmp_path)
    Publisher(Recorder(), tmp_path).close()


def test_a_worker_has_to_be_left_for_storing(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="workers_reserved must be at least 1"):
        Publisher(Recorder(), tmp_path, PublisherConfig(workers_reserved=0))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_file_system(tmp_path / "mount", 512 << 10) as disk:
        yield disk


def test_a_full_disk_stops_storing_until_there_is_room(disk: SmallDisk, caplog: pytest.LogCaptureFixture) -> None:
    transport = Recorder()
    publisher = Publisher(transport, disk.directory, QUICK, journal=SMALL)
    assert publisher.publish(publication(0))
    assert publisher.flush(WAIT_S)
    disk.fill()
    number = 0
    while not any("the disk is full" in record.message for record in caplog.records):
        number += 1
        assert publisher.publish(publication(number, 5000), wait_s=WAIT_S)
        publisher.flush(0.02)
    assert not publisher.flush(0)
    disk.free()
    assert publisher.flush(WAIT_S)
    assert publisher.close(WAIT_S)
    assert sorted(map(int, transport.ids)) == list(range(number + 1))
    assert any("there is space on the disk again" in record.message for record in caplog.records)


def test_a_disk_that_fails_is_told_to_those_who_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Recorder()
    publisher = Publisher(transport, tmp_path)
    assert publisher.publish(publication(1))
    assert publisher.flush(WAIT_S)

    def fail(name: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(publisher._disk, "sync", fail)
    assert publisher.publish(publication(2))
    with pytest.raises(StorageFailed, match="Input/output error"):
        publisher.flush(WAIT_S)
    with pytest.raises(StorageFailed):
        publisher.publish(publication(3))
    assert not publisher.close(WAIT_S)
    assert transport.ids == ["1"]
