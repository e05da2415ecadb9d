"""The Spark engine's logs in a data directory: how far their publications can be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from lavant.broker.log.blocks import file_name, files_of, read_block, scan_blocks
from lavant.broker.subscriptions.lanes import Lane
from lavant.core.errors import LavantError


class LaneLog(msgspec.Struct, frozen=True):
    """What there is of a lane's log, from what is delivered on."""

    lane: str
    accepted: int
    delivered: int
    end: int
    """The offset up to which publications can be read, at least `delivered`."""
    problem: str
    """Why no further, if it is not as far as was accepted."""
    kept: tuple[tuple[str, int], ...]
    """Files that hold what can be read, and how many bytes of each."""


def look_at(name: str, lane: Lane, directory: Path) -> LaneLog:
    """Read what is owed; whatever lies before it, nobody needs."""
    end, kept, problem = lane.delivered, list[tuple[str, int]](), ""
    try:
        for path in files_of(directory):
            size = 0
            for block in scan_blocks(path):
                behind = block.first_offset + block.publications
                if behind > lane.delivered:
                    if block.first_offset > end:
                        raise _Missing(f"publications {end} to {block.first_offset - 1} are not there")
                    read_block(block)
                    end = max(end, behind)
                size = block.position + block.length
            if size:
                kept.append((path.name, size))
            if size < path.stat().st_size and path != files_of(directory)[-1]:
                raise _Missing(f"{path} is damaged behind byte {size}")
    except (_Missing, LavantError, OSError) as error:
        problem = str(error)
        if size and (not kept or kept[-1][0] != path.name):
            kept.append((path.name, size))
    if end < lane.accepted and not problem:
        problem = f"it ends at publication {end}, and publications up to {lane.accepted} were accepted"
    return LaneLog(name, lane.accepted, lane.delivered, end, problem if end < lane.accepted else "", tuple(kept))


def copy(log: LaneLog, source: Path, target: Path) -> None:
    """What can be read, so that it opens; an empty file says where it goes on if there is nothing."""
    target.mkdir(parents=True)
    if log.end == log.delivered or not log.kept:
        (target / file_name(log.end)).touch()
        return
    for name, size in log.kept:
        shutil.copyfile(source / name, target / name)
        with (target / name).open("r+b") as file:
            file.truncate(size)


class _Missing(Exception):
    pass
