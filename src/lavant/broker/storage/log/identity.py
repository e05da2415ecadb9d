"""The identity of a log: `log.json` beside its files, written by the first writer that opens it, and never changed.

A log that was written only by versions without identities has none yet.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from lavant.core.errors import UNDECODABLE, CorruptSnapshot, IdentityMismatch
from lavant.core.files import replace_file
from lavant.core.identities import UNKNOWN, is_other, new_identity


class _Settings(msgspec.Struct, frozen=True):
    identity: str
    format: int = 1


def log_identity(directory: Path) -> str:
    """`UNKNOWN` if there is no log, or one from before identities."""
    path = directory / "log.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Settings).identity
    except (FileNotFoundError, NotADirectoryError):
        return UNKNOWN
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{path} is damaged: {error}; restore it from a copy") from None


def check_log(directory: Path, expected: str) -> str:
    """The log's identity, if it can be the expected one."""
    found = log_identity(directory)
    if is_other(expected, found):
        raise IdentityMismatch(
            f"the log {directory} is not the one read before: its identity was {expected} and is {found}. If it "
            "was recreated, start afresh with another output directory; if not, put the right log there"
        )
    return found


def keep_identity(directory: Path, given: str | None) -> str:
    """For a writer: the log's identity, written if it had none. One that is given must be the one it has."""
    found = log_identity(directory)
    if found == UNKNOWN:
        found = given if given is not None else new_identity()
        replace_file(directory / "log.json", [msgspec.json.encode(_Settings(found))])
    elif given is not None and found != given:
        raise IdentityMismatch(
            f"the log {directory} belongs to another owner: its identity is {found}, expected {given}; "
            "restore the log that belongs here from a copy"
        )
    return found
