"""Identities of stores and logs: they tell a store from an earlier one at the same path.

This is the only module of the pure packages that uses randomness. An identity decides only whether two stores are the
same, and code that creates a directory must not be able to forget that it is a new one.
"""

from __future__ import annotations

import hashlib
import uuid

UNKNOWN = ""
"""The identity of stores written before identities existed; it equals any other."""


def new_identity() -> str:
    """Returns a unique identity."""
    return uuid.uuid4().hex


def derived_identity(*parts: bytes | str | int) -> str:
    """Returns an identity that is the same for the same parts, in any process.

    >>> derived_identity("a", 1) == derived_identity("a", 1) != derived_identity("a1")
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def is_other(known: str, found: str) -> bool:
    """Whether two identities certainly belong to different stores."""
    return UNKNOWN not in (known, found) and known != found
