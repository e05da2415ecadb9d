"""A file that a newer version of Lavant wrote is refused in one line that says so, and nothing is changed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from tests.integration import data_directories
from tests.integration.data_directories import Writer, opened

from lavant.broker.federation import snapshot as federation_snapshot
from lavant.broker.federation.migration import snapshot as migration_snapshot
from lavant.broker.filters import Filter
from lavant.broker.machine import machine
from lavant.broker.machine.effects import TIME_BYTES
from lavant.broker.machine.state import BrokerState
from lavant.broker.queues import compatibility
from lavant.broker.queues import snapshot as queue_snapshot
from lavant.broker.slices import SliceReader, SliceStore
from lavant.broker.storage.log import LogReader, LogWriter
from lavant.broker.storage.log.identity import check_log
from lavant.broker.subscriptions import snapshot as subscription_snapshot
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.broker.workflows import snapshot as job_snapshot
from lavant.cli.server.config_file import limits_of, read_config
from lavant.core.errors import CorruptSnapshot, InvalidValue, LavantError, NewerFormat, check_format
from lavant.core.identities import UNKNOWN
from lavant.core.publications.batch import PublicationBatch
from lavant.service.auth.keys import KeyEntry, KeyRing, entry_text, sha256_of
from lavant.service.storage import namespace_logs
from lavant.service.storage.check import check
from lavant.service.storage.repair import repair

CLEAR = r"has format 2, this version of Lavant reads up to format 1; use the version that wrote it, or a later one"


def data_directory(directory: Path) -> None:
    writer = Writer(directory)
    data_directories._set_up(writer)
    writer.compact()
    for _ in range(5):
        data_directories._step(writer, random.Random(1))
    writer.close()


def log(directory: Path) -> None:
    with LogWriter(directory) as writer:
        writer.append(PublicationBatch.from_dicts([{"a": 1}]).records)


def slices(directory: Path) -> None:
    SliceStore.create(directory, slices=1).add([1], [Filter.parse("a > 1")])


def read_log(directory: Path) -> None:
    check_log(directory, UNKNOWN)
    list(LogReader(directory).read(0, 1))


def read_slices(directory: Path) -> None:
    reader = SliceReader(directory)
    reader.matcher(0, reader.version())


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object], str, bytes, bytes]] = {
    "manifest": (data_directory, opened, "manifest", b"lavant-journal 1", b"lavant-journal 2"),
    "segment": (data_directory, opened, "segment-*", b"LVBLOCK1", b"LVBLOCK2new"),
    "snapshot": (data_directory, opened, "snapshot-*", b"LVSNAPS1", b"LVSNAPS2new"),
    "log": (log, read_log, "*.log", b"1LVL", b"2LVLnew"),
    "log settings": (log, read_log, "log.json", b'"format":1', b'"format":2'),
    "a slice": (slices, read_slices, "slice-*/**/*", b"LAVANT1\n", b"LAVANT2\n"),
    "slices": (slices, read_slices, "store.json", b'"format":1', b'"format":2'),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_newer_format_is_refused(kind: str, tmp_path: Path) -> None:
    make, read, pattern, old, new = CASES[kind]
    make(tmp_path / "data")
    paths = [path for path in sorted((tmp_path / "data").glob(pattern)) if path.is_file() and old in path.read_bytes()]
    assert paths
    for path in paths:
        path.write_bytes(path.read_bytes().replace(old, new))
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(LavantError, match=CLEAR) as refused:
        read(tmp_path / "data")
    assert "\n" not in str(refused.value)
    assert re.match(rf".*{paths[0].name}", str(refused.value))
    if make is data_directory:
        is_said_to_be_too_new(tmp_path, CLEAR)
    assert {path: path.read_bytes() for path in paths} == before


def is_said_to_be_too_new(place: Path, why: str) -> None:
    """By `lavant check`, which repairs nothing then."""
    report = check(place / "data")
    assert [(each.code, each.level) for each in report.findings] == [("too-new", "obstacle")]
    assert re.search(why, report.findings[0].said)
    assert not report.opens
    with pytest.raises(InvalidValue, match=why):
        repair(place / "data", place / "new")
    assert not (place / "new").exists()


@pytest.mark.parametrize("section", [queue_snapshot, job_snapshot, subscription_snapshot])
def test_a_newer_section_of_a_snapshot_is_refused(
    section: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(section, "FORMAT", section.FORMAT + 1)
        data_directory(tmp_path / "data")
    is_said_to_be_too_new(tmp_path, rf"the snapshot of the \w+ has format {section.FORMAT + 1}, this version")


@pytest.mark.parametrize("section", [federation_snapshot, migration_snapshot])
def test_a_newer_section_about_neighbours_is_refused(section: Any) -> None:
    head = ["head", section.FORMAT + 1, *[0] * 3, []] if section is federation_snapshot else ["head", 2]
    broker = BrokerState()
    state = broker.federation if section is federation_snapshot else broker.migrations
    with pytest.raises(NewerFormat, match="has format 2, this version of Lavant reads up to format 1"):
        section.decode([msgspec.msgpack.encode(head)], state)


@pytest.mark.parametrize("section", [queue_snapshot, subscription_snapshot])
def test_a_format_that_is_no_longer_read_is_damage(section: Any) -> None:
    with pytest.raises(CorruptSnapshot, match=r"has format 1, this version of Lavant reads 2 to \d") as refused:
        check_format("the snapshot", 1, section.FORMAT, oldest=2)
    assert not isinstance(refused.value, NewerFormat)


def test_newer_rules_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(compatibility, "RULES", 9)
        newer.setattr(machine, "RULES", 9)
        Writer(tmp_path / "data").close()
    known = f"this version of Lavant knows those up to {compatibility.RULES}; use the"
    is_said_to_be_too_new(tmp_path, f"written with rules 9, and {known}")


def test_a_command_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "data")
    writer.journal.stage(bytes(TIME_BYTES) + msgspec.msgpack.encode(["fly", "away"]))
    writer._commit()
    writer.close()
    is_said_to_be_too_new(tmp_path, "record 2 of the journal is a command 'fly', which this version of Lavant does not")


@pytest.mark.parametrize("kind", ["log", "log settings"])
def test_a_newer_log_of_the_spark_engine_is_not_damaged(kind: str, tmp_path: Path) -> None:
    _, _, pattern, old, new = CASES[kind]
    log(tmp_path)
    [path] = tmp_path.glob(pattern)
    path.write_bytes(path.read_bytes().replace(old, new))
    found = namespace_logs.scan(LogOffset(1, 0), tmp_path)
    assert found.is_newer
    assert re.search(CLEAR, found.problem)


def test_a_field_of_a_newer_keys_file_is_named(tmp_path: Path) -> None:
    entry = entry_text(KeyEntry(name="a", sha256=sha256_of("a"), scopes=["admin"]))
    (tmp_path / "keys.toml").write_text(f"{entry}\nnew_field = 1\n")
    (tmp_path / "keys.toml").chmod(0o600)
    with pytest.raises(LavantError, match="new_field"):
        KeyRing(tmp_path / "keys.toml")


def test_a_limit_of_a_newer_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "lavant.toml").write_text("[limits]\nnew_limit = 1\n")
    with pytest.raises(LavantError, match=r"limits\.new_limit, which is not a limit"):
        limits_of(read_config(tmp_path / "lavant.toml")["limits"], tmp_path / "lavant.toml")
