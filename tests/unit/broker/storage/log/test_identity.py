"""A log's identity: kept for its life, and another log at the same path is not taken for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.identity import log_identity
from lavant.core.errors import CorruptSnapshot, IdentityMismatch
from lavant.core.identities import UNKNOWN
from lavant.core.publications.batch import PublicationBatch


def write(directory: Path, count: int) -> str:
    with LogWriter(directory, durable=False) as log:
        for _ in range(count):
            log.append(PublicationBatch.from_dicts([{"a": count}]).records)
        return log.identity


def rebuild(directory: Path, count: int) -> str:
    shutil.rmtree(directory)
    return write(directory, count)


def test_a_log_keeps_its_identity_and_no_other_has_it(tmp_path: Path) -> None:
    first = write(tmp_path / "log", 1)
    assert write(tmp_path / "log", 2) == first == LogReader(tmp_path / "log").identity
    assert rebuild(tmp_path / "log", 1) != first


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_reader_does_not_go_on_in_another_log(tmp_path: Path, count: int) -> None:
    """Whether the other one is shorter, as long, or longer."""
    write(tmp_path / "log", 3)
    opened, ended, read = (LogReader(tmp_path / "log") for _ in range(3))
    assert opened.identity
    assert ended.end() == 3
    assert len(list(read.read(0, 3))) == 3
    rebuild(tmp_path / "log", count)
    for reader in (opened, ended, read):
        with pytest.raises(IdentityMismatch, match="is not the one read before"):
            reader.end()
        with pytest.raises(IdentityMismatch, match="start afresh"):
            list(reader.read(0, 1))


def test_a_reader_that_is_told_an_identity_reads_no_other_log(tmp_path: Path) -> None:
    first = write(tmp_path / "log", 1)
    assert LogReader(tmp_path / "log", first).end() == 1
    with pytest.raises(IdentityMismatch):
        LogReader(tmp_path / "log", "another").end()


def test_a_log_of_old_opens_and_gets_an_identity_from_its_next_writer(tmp_path: Path) -> None:
    write(tmp_path / "log", 2)
    (tmp_path / "log" / "log.json").unlink()
    reader = LogReader(tmp_path / "log")
    assert (reader.end(), reader.identity) == (2, UNKNOWN)
    given = write(tmp_path / "log", 1)
    assert (reader.end(), reader.identity) == (3, given)
    rebuild(tmp_path / "log", 5)
    with pytest.raises(IdentityMismatch):
        reader.end()


def test_a_log_that_belongs_to_another_is_not_written(tmp_path: Path) -> None:
    with LogWriter(tmp_path, identity="mine") as log:
        assert log.identity == "mine"
    with LogWriter(tmp_path, identity="mine"):
        pass
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(IdentityMismatch, match="belongs to another owner: its identity is mine, expected yours"):
        LogWriter(tmp_path, identity="yours")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_damaged_identity_is_named(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "log.json").write_text("{")
    for use in (lambda: LogWriter(tmp_path), lambda: LogReader(tmp_path).end(), lambda: log_identity(tmp_path)):
        with pytest.raises(CorruptSnapshot, match=r"log\.json is damaged"):
            use()
