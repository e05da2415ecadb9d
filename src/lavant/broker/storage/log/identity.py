"""The identity of a log: `log.json` beside its files, written by the first writer that opens it, and never changed.

A log that was written only by versions without identities has none yet.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from lavant.broker.storage.objects import ObjectStorage, open_storage
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, IdentityMismatch, too_new
from lavant.core.identities import UNKNOWN, is_other, new_identity

SETTINGS = "log.json"
FORMAT = 1


class _Settings(msgspec.Struct, frozen=True):
    identity: str
    format: int = FORMAT


def log_identity(place: str | Path | ObjectStorage) -> str:
    """`UNKNOWN` if there is no log, or one from before identities."""
    storage = open_storage(place)
    try:
        settings = msgspec.json.decode(storage.read(SETTINGS), type=_Settings)
    except FileNotFoundError:
        return UNKNOWN
    except UNDECODABLE as error:
        raise CorruptSnapshot(f"{storage.uri}/{SETTINGS} is damaged: {error}; restore it from a copy") from None
    if settings.format > FORMAT:
        raise too_new(f"{storage.uri}/{SETTINGS}", settings.format, FORMAT)
    return settings.identity


def check_log(place: str | Path | ObjectStorage, expected: str) -> str:
    """The log's identity, if it can be the expected one."""
    found = log_identity(place)
    if is_other(expected, found):
        raise IdentityMismatch(
            f"the log {open_storage(place).uri} is not the one read before: its identity was {expected} and is "
            f"{found}. If it was recreated, start afresh with another output directory; if not, put the right log there"
        )
    return found


def keep_identity(storage: ObjectStorage, given: str | None) -> str:
    """For a writer: the log's identity, written if it had none. One that is given must be the one it has."""
    found = log_identity(storage)
    if found == UNKNOWN:
        storage.create(SETTINGS, [msgspec.json.encode(_Settings(given if given is not None else new_identity()))])
        found = log_identity(storage)  # of another writer, if that was quicker
    if given is not None and found != given:
        raise IdentityMismatch(
            f"the log {storage.uri} belongs to another owner: its identity is {found}, expected {given}; "
            "restore the log that belongs here from a copy"
        )
    return found
