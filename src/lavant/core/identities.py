"""Identities of stores and logs: two that lie at one path, one after the other, are told apart by theirs.

This is the one module of the pure packages that throws dice. An identity decides nothing but whether two things are the
same, and whoever makes a directory anew must not be able to forget that it is a new one.
"""

from __future__ import annotations

import hashlib
import uuid

UNKNOWN = ""
"""Of what was made before there were identities; it passes for any."""


def new_identity() -> str:
    """One that nothing else has."""
    return uuid.uuid4().hex


def derived_identity(*parts: bytes | str | int) -> str:
    """The same for the same parts, in any process.

    >>> derived_identity("a", 1) == derived_identity("a", 1) != derived_identity("a1")
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def is_other(known: str, found: str) -> bool:
    """Whether two identities are of two things for certain."""
    return UNKNOWN not in (known, found) and known != found
