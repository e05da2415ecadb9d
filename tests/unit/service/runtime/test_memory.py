"""Where the limit of memory comes from: an option, the container, those around it, or the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lavant.core.errors import InvalidValue
from lavant.service.runtime.memory import (
    MEMORY_MIN,
    RESERVE_BYTES,
    SHARE,
    SHARE_WITHOUT_COMPACTION,
    available_memory,
    check_memory_max,
    memory_limit,
    parsed_bytes,
)

GIB = 1 << 30
MACHINE = available_memory(Path("/nowhere")).size_bytes
SMALL = min(GIB, MACHINE // 2)


def system(root: Path, cgroup: str, **files: str) -> Path:
    """A /proc and a /sys."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for path, content in files.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "size_bytes", "origin"),
    [
        ("0::/\n", {"memory.max": f"{SMALL}\n"}, SMALL, "the container"),
        ("0::/pod/app\n", {"pod/app/memory.max": f"{SMALL}\n"}, SMALL, "cgroup /pod/app"),
        (
            "0::/pod/app\n",
            {"pod/app/memory.max": f"{SMALL}\n", "pod/memory.max": f"{SMALL // 2}\n", "memory.max": "max\n"},
            SMALL // 2,
            "cgroup /pod",
        ),
        ("0::/pod/app\n", {"pod/app/memory.max": "max\n"}, MACHINE, "the machine"),
        ("0::/../../other\n", {"memory.max": f"{SMALL}\n"}, SMALL, "the container"),
        (
            "12:cpu:/x\n5:memory:/docker/abc\n",
            {"memory/memory.limit_in_bytes": f"{SMALL}\n"},
            SMALL,
            "the container",
        ),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE, "the machine"),
        ("4:memory,hugetlb:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": f"{SMALL}"}, SMALL, "cgroup /a"),
        ("0::/\n", {"memory.max": f"{4 * MACHINE}\n"}, MACHINE, "the machine"),
        ("0::/\n", {"memory.max": "nonsense"}, MACHINE, "the machine"),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, cgroup: str, files: dict[str, str], size_bytes: int, origin: str
) -> None:
    found = available_memory(system(tmp_path, cgroup, **files))
    assert (found.size_bytes, found.origin) == (size_bytes, origin)


def test_the_default_leaves_room_for_the_process_that_makes_snapshots(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/\n", **{"memory.max": str(SMALL)})
    with_, without = (memory_limit(None, compacts=compacts, root=root) for compacts in (True, False))
    assert with_.size_bytes == int((SMALL - RESERVE_BYTES) * SHARE)
    assert without.size_bytes == int((SMALL - RESERVE_BYTES) * SHARE_WITHOUT_COMPACTION)
    assert 2 * with_.size_bytes + RESERVE_BYTES < SMALL
    assert "of the container less 448 MiB" in with_.origin
    assert not with_.warning


def test_a_container_that_is_too_small_gets_the_least_limit_and_a_warning(tmp_path: Path) -> None:
    limit = memory_limit(None, compacts=True, root=system(tmp_path, "0::/\n", **{"memory.max": str(RESERVE_BYTES)}))
    assert limit.size_bytes == MEMORY_MIN
    assert "the container has 448 MiB" in limit.warning


def test_a_limit_that_is_given_holds_and_one_that_is_too_large_is_warned_of(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/\n", **{"memory.max": str(SMALL)})
    given = memory_limit(20 << 20, compacts=True, root=root)
    assert (given.size_bytes, given.warning) == (20 << 20, "")
    assert "the container has" in memory_limit(SMALL, compacts=True, root=root).warning


@pytest.mark.parametrize("text", ["", "M", "-1G", "1e99", "nan", "inf", "4 G B", "12Q"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a number of bytes; write 512M or 4G"):
        parsed_bytes(text)


def test_too_little_is_refused() -> None:
    check_memory_max(MEMORY_MIN)
    with pytest.raises(InvalidValue, match="at least 16 MiB, got 16777215 bytes"):
        check_memory_max(MEMORY_MIN - 1)
