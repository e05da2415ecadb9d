"""The Spark engine's logs in a data directory: how far their publications can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from lavant.broker.storage.log.blocks import file_name, files_of, read_block, scan_blocks
from lavant.broker.storage.log.identity import check_log
from lavant.broker.subscriptions.log_offsets import LogOffset
from lavant.core.errors import CorruptSnapshot, LavantError
from lavant.core.identities import UNKNOWN


class LaneLog(msgspec.Struct, frozen=True):
    """What there is of a lane's log, from what is delivered on."""

    accepted: int
    end: int
    """The offset up to which publications can be read, at least what is delivered."""
    problem: str
    """Why no further, or what else is wrong with it."""
    kept: tuple[tuple[str, int], ...]
    """Files that hold what can be read, and how many bytes of each."""

    @property
    def lost(self) -> int:
        """Publications that were accepted and cannot be read."""
        return max(0, self.accepted - self.end)


def look_at(lane: LogOffset, directory: Path, identity: str = UNKNOWN) -> LaneLog:
    """Read what is owed, of a log with this identity if it is given. Files that are delivered do not count."""
    end, problem = lane.delivered, ""
    kept: dict[str, int] = {}
    try:
        check_log(directory, identity)
    except LavantError as error:
        problem = str(error)
    try:
        for path in _files_behind(directory, lane.delivered):
            for block in scan_blocks(path):
                behind = block.first_offset + block.publications
                if block.first_offset > end:
                    raise CorruptSnapshot(f"{path}: publications {end} to {block.first_offset - 1} are not there")
                if behind > lane.delivered and block.first_offset < lane.accepted:
                    read_block(block)
                    end = max(end, behind)
                kept[path.name] = block.position + block.length
    except (LavantError, OSError) as error:
        if end < lane.accepted or not problem:
            problem = str(error)
    if end < lane.accepted and not problem:
        problem = f"it ends at publication {end}, and publications up to {lane.accepted} were accepted"
    return LaneLog(lane.accepted, end, problem, tuple(kept.items()))


def _files_behind(directory: Path, offset: int) -> list[Path]:
    """Those that hold publications from an offset on, or may get them."""
    following = [*files_of(directory)[1:], None]
    return [path for path, next_ in zip(files_of(directory), following, strict=True) if _begins_behind(next_, offset)]


def _begins_behind(path: Path | None, offset: int) -> bool:
    return path is None or int(path.stem) > offset


def copy(log: LaneLog, source: Path, target: Path) -> None:
    """What can be read, so that it opens; an empty file says where it goes on if there is nothing."""
    target.mkdir(parents=True)
    if not log.kept:
        (target / file_name(log.end)).touch()
    for name, size in log.kept:
        shutil.copyfile(source / name, target / name)
        with (target / name).open("r+b") as file:
            file.truncate(size)
