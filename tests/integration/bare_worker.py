"""Runs a command with a view of the files of its own: directories are covered, others are kept or put elsewhere.

python -I bare_worker.py JSON COMMAND…, as root of a mount and a UTS namespace; see `bare_cluster`. It needs the
standard library only, and none of it after the directories are covered.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys

MS_BIND, MS_REC = 4096, 16384


def main(plan: dict[str, object], command: list[str]) -> None:
    """`hidden` are directories; `kept` are pairs of what is there now and where it shall be."""
    hidden, kept, name = plan["hidden"], plan["kept"], plan["name"]
    assert isinstance(hidden, list)
    assert isinstance(kept, list)
    assert isinstance(name, str)
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        if libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), target)

    socket.sethostname(name)
    held = [(os.open(source, os.O_PATH), os.path.isdir(source), target) for source, target in kept]
    for directory in sorted(hidden):
        if os.path.isdir(directory):  # or below one that is covered already
            mount("tmpfs", directory, "tmpfs", 0, "size=1g,mode=1777")
    for descriptor, is_directory, target in held:
        if is_directory:
            os.makedirs(target, exist_ok=True)
        mount(f"/proc/self/fd/{descriptor}", target, "", MS_BIND | MS_REC)
        os.close(descriptor)
    os.chdir("/")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
