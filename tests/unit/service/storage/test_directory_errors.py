"""What the system says about a data directory, as a line that says what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lavant.core.errors import CorruptJournal, InvalidValue, LavantError, StorageFailed, StorageFull
from lavant.service.storage.directory_errors import explained

HERE = Path("data")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "give the user that runs the server the right to read and write it"),
        (errno.EROFS, "mount it writable"),
        (errno.EEXIST, "it is a file; give --data a directory"),
        (errno.ENOTDIR, "a part of the path is a file"),
        (errno.EIO, "the disk fails"),
        (errno.EMFILE, "check it, or use another directory"),
    ],
)
def test_every_error_of_the_system_names_the_file_the_reason_and_what_to_do(number: int, remedy: str) -> None:
    with pytest.raises((StorageFailed, InvalidValue)) as raised, explained(HERE):
        raise OSError(number, os.strerror(number), "data/segment-0000000001")
    assert str(raised.value).startswith(f"data/segment-0000000001 cannot be used ({os.strerror(number)}): ")
    assert remedy in str(raised.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_said_as_such(number: int) -> None:
    with pytest.raises(StorageFull, match=r"there is no space for data .*; free space on the disk"), explained(HERE):
        raise OSError(number, os.strerror(number))


def test_damage_names_the_command_that_says_more() -> None:
    with pytest.raises(CorruptJournal, match=r"it is damaged\. `lavant check data` says more"), explained(HERE):
        raise CorruptJournal("it is damaged")


def test_others_pass_and_without_a_directory_all_do() -> None:
    with pytest.raises(LavantError, match=r"^as it was$"), explained(HERE):
        raise LavantError("as it was")
    with pytest.raises(PermissionError), explained(None):
        raise PermissionError(errno.EACCES, "no")
