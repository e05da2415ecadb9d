"""Repair: copies a damaged data directory to one that opens, and lists what is missing. The original stays."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from lavant.broker.machine.rescue import LeftOut, Rescued, left_out, missing_segments, rescue
from lavant.broker.storage.disks import FileDisk
from lavant.broker.storage.journal import JournalConfig, write_snapshot
from lavant.broker.storage.journal.manifest import MANIFEST, JournalManifest
from lavant.broker.storage.journal.salvage import Salvaged, salvage
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.core.errors import InvalidValue
from lavant.service.engines.factory import DIRECTORY as SPARK
from lavant.service.storage import namespace_logs
from lavant.service.storage.check import TOO_NEW, Contents, OnRead, WatchedDisk, check, held
from lavant.service.storage.directory_errors import checked_directory, explained

_ALSO = ("clock",)
"""Files copied unchanged."""


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair."""

    directory: str
    report: str
    """A file with one line of JSON for each record or file that was left out."""
    position: int
    """The last record in the copy."""
    problem: str
    """Why it ends there; empty if nothing is lost."""
    contents: Contents
    left_out: dict[str, int]
    """Counts by kind of record or damage."""


def repair(directory: Path, target: Path, on_read: OnRead = lambda size: None) -> Repaired:
    """Make the copy. Raises if the target exists, the directory is in use or of a newer version, or nothing can
    be saved."""
    checked_directory(directory)
    report = target.with_name(target.name + ".left-out.jsonl")
    for path in (target, report):
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise InvalidValue(f"{path} exists already; give --repair a new directory")
    with held(directory), explained(target):
        _refuse_newer(directory)
        disk = WatchedDisk(directory, on_read)
        config = JournalConfig(directory=str(directory))
        found = salvage(disk, config)
        if found is None:
            raise InvalidValue(f"{directory} has no trace of a journal; there is nothing to save")
        rescued, damaged = rescue(disk, found, config)
        lost = _copy_logs(rescued, directory, target)
        missing = [LeftOut("the file is missing", name) for name in missing_segments(found, disk.names())]
        _write(target, found, rescued)
        for name in _ALSO:
            if (directory / name).is_file():
                shutil.copyfile(directory / name, target / name)
        counts = _list(report, [*damaged, *missing, *lost], left_out(disk, found, rescued))
    problem = rescued.problem
    if not problem and damaged and rescued.position < found.snapshots[0]:
        problem = damaged[0].why
    return Repaired(
        directory=str(target),
        report=str(report),
        position=rescued.position,
        problem=problem,
        contents=Contents.of(rescued.broker),
        left_out=dict(counts),
    )


def _refuse_newer(directory: Path) -> None:
    """What a newer version of Lavant wrote is not damaged, and would be left out."""
    for finding in check(directory).findings:
        if finding.code == TOO_NEW:
            raise InvalidValue(f"{finding.said}; it is not damaged")


def _write(target: Path, found: Salvaged, rescued: Rescued) -> None:
    """Write a snapshot and a manifest; the first start creates the segments."""
    position = rescued.position
    with FileDisk(target) as disk:
        manifest = JournalManifest(journal_id=found.journal_id, first_position=position + 1, durable=position)
        if position:
            chunks = rescued.broker.snapshot()
            size = write_snapshot(disk, chunks, journal_id=found.journal_id, position=position)
            manifest = msgspec.structs.replace(manifest, snapshot=position, snapshot_bytes=size)
        disk.replace(MANIFEST, [manifest.encode()])


def _copy_logs(rescued: Rescued, directory: Path, target: Path) -> list[LeftOut]:
    """Copy the readable parts of publication logs, and set the accepted offsets to their ends."""
    log_offsets = rescued.broker.subscriptions.log_offsets
    lost: list[LeftOut] = []
    kept: list[tuple[str, LogOffset]] = []
    for name, offset in log_offsets.all():
        source = directory / SPARK / name / "log"
        if not offset.lag:  # its log starts empty
            continue
        log = namespace_logs.scan(offset, source)
        namespace_logs.copy(log, source, target / SPARK / name / "log")
        kept.append((name, LogOffset(min(offset.accepted, log.end), offset.delivered)))
        if log.lost:
            why = f"accepted publications of the log {name!r}: {log.problem}"
            lost.append(LeftOut(why, str(Path(SPARK, name, "log")), first=log.end, last=offset.accepted - 1))
    log_offsets.restore(kept)
    return lost


def _list(report: Path, known: list[LeftOut], others: Iterator[LeftOut]) -> Counter[str]:
    counts: Counter[str] = Counter()
    with report.open("wb") as file:
        for each in (*known, *others):
            counts[each.kind if each.kind else "missing" if each.offset is None else "unreadable bytes"] += 1
            file.write(msgspec.json.encode(each) + b"\n")
    return counts
