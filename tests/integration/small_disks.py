"""Disks that are really full: a small file system in memory, or a bound on the size of files."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.integration.components import do_without


class SmallDisk(NamedTuple):
    directory: Path
    fill: Callable[[], None]
    """From now on there is no room."""
    free: Callable[[], None]


@contextmanager
def small_file_system(mount: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """It is taken out of the tree at once, and lasts as long as it is held open: however a test ends, nothing stays."""
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(mount)]
    mounting = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounting.returncode:
        do_without(f"a file system cannot be mounted here: {mounting.stderr.strip()}")
    held = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    subprocess.run(["umount", "--lazy", str(mount)], check=True)
    root = Path(f"/proc/{os.getpid()}/fd/{held}")
    ballast = root / "ballast"

    def fill() -> None:
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    try:
        yield SmallDisk(root / "data", fill, ballast.unlink)
    finally:
        os.close(held)


@contextmanager
def small_files(parent: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """No file may grow beyond a few bytes while the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size_bytes: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))

    try:
        yield SmallDisk(parent / "data", limit(size_bytes), limit(soft))
    finally:
        limit(soft)()


def left_on(directory: Path) -> list[str]:
    """Files that should have been cleared away."""
    return [name for name in os.listdir(directory) if name.endswith(".partial")]
