"""What a check of a data directory finds."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    DAMAGE = "damage"
    """Something is lost or wrong: a server does not open it."""
    OBSTACLE = "obstacle"
    """It is whole, but a server does not open it here: rights, room, an older version."""
    NOTE = "note"
    """Worth knowing; a server opens it."""


class Finding(msgspec.Struct, frozen=True):
    code: str
    """For programs."""
    level: Level
    said: str
    remedy: str
