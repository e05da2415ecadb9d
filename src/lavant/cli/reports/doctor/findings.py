"""What a check says."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something is missing that not everybody needs."""
    BAD = "bad"
    """Lavant will not work well."""


class Finding(msgspec.Struct, frozen=True):
    what: str
    verdict: CheckVerdict
    said: str
    """What was found."""
    remedy: str = ""
