"""Which processes run: tests kill some of those that they started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def processes() -> list[Process]:
    """All that can be seen, with their whole command lines."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # gone meanwhile
                continue
            found.append(Process(int(path.name), parent, command))
    return found


def descendants(root: int = 0) -> list[Process]:
    """The processes that this one, or `root`, started, and those that they did."""
    everything = processes()
    mine, queue = [], [root or os.getpid()]
    while queue:
        parent = queue.pop()
        children = [process for process in everything if process.parent == parent]
        mine += children
        queue += [process.pid for process in children]
    return mine


def python_workers(root: int = 0) -> list[int]:
    """Process ids of the Python workers that the daemons of Spark, started by this process or `root`, have forked.

    Java, the daemons' parent, names their module in its command line too; its children are daemons, not workers.
    """
    mine = descendants(root)
    daemons = {process.pid for process in mine if "-m lavant.pipeline.internals.daemon" in process.command}
    return [process.pid for process in mine if process.parent in daemons]
