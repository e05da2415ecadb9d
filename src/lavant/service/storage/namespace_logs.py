"""Publication logs of the Spark engine in a data directory: how far they can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from lavant.broker.storage.log.blocks import file_name, files_of, read_block, scan_blocks
from lavant.broker.storage.log.identity import check_log
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.core.errors import CorruptSnapshot, LavantError, NewerFormat
from lavant.core.identities import UNKNOWN


class LaneLog(msgspec.Struct, frozen=True):
    """The readable part of a publication log, from the delivered offset on."""

    accepted: int
    end: int
    """The offset up to which publications can be read, at least the delivered one."""
    problem: str
    """Why no further, or other damage; empty if there is none."""
    kept: tuple[tuple[str, int], ...]
    """Readable files and the number of bytes of each."""
    is_newer: bool = False
    """A newer version of Lavant wrote it."""

    @property
    def lost(self) -> int:
        """Accepted publications that cannot be read."""
        return max(0, self.accepted - self.end)


def scan(offsets: LogOffset, directory: Path, identity: str = UNKNOWN) -> LaneLog:
    """Read undelivered publications of a log, which must have this identity if given. Delivered files are skipped."""
    end, problem, is_newer = offsets.delivered, "", False
    kept: dict[str, int] = {}
    try:
        check_log(directory, identity)
    except LavantError as error:
        problem, is_newer = str(error), isinstance(error, NewerFormat)
    try:
        for path in _files_behind(directory, offsets.delivered):
            for block in scan_blocks(path):
                behind = block.first_offset + block.publications
                if block.first_offset > end:
                    raise CorruptSnapshot(f"{path}: publications {end} to {block.first_offset - 1} are missing")
                if behind > offsets.delivered and block.first_offset < offsets.accepted:
                    read_block(block)
                    end = max(end, behind)
                kept[path.name] = block.position + block.length
    except (LavantError, OSError) as error:
        if not is_newer and (end < offsets.accepted or not problem):
            problem, is_newer = str(error), isinstance(error, NewerFormat)
    if end < offsets.accepted and not problem:
        problem = f"it ends at publication {end}, and publications up to {offsets.accepted} were accepted"
    return LaneLog(offsets.accepted, end, problem, tuple(kept.items()), is_newer)


def _files_behind(directory: Path, offset: int) -> list[Path]:
    """Files that hold publications from an offset on, or may get them."""
    following = [*files_of(directory)[1:], None]
    return [path for path, next_ in zip(files_of(directory), following, strict=True) if _begins_behind(next_, offset)]


def _begins_behind(path: Path | None, offset: int) -> bool:
    return path is None or int(path.stem) > offset


def copy(log: LaneLog, source: Path, target: Path) -> None:
    """Copy the readable part, so that it opens; if nothing is readable, an empty file marks where it continues."""
    target.mkdir(parents=True)
    if not log.kept:
        (target / file_name(log.end)).touch()
    for name, size in log.kept:
        shutil.copyfile(source / name, target / name)
        with (target / name).open("r+b") as file:
            file.truncate(size)
