"""Masks: why no sector of a block is ever empty.

Behind the last block a segment holds zeros, so a sector that a crash kept from the disk is a sector of zeros. For that
to be certain, no sector of a block may be zeros itself, nor become so by one flipped bit. A body in which that could be
is written under a mask: each byte is combined (exclusive or) with a pattern, and reading combines it again.

The patterns come from the journal's id, which is random: nobody can send a message that looks like one of them.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

from lavant.broker.journal.disk import SECTOR_BYTES

_HOLLOW = bytes(SECTOR_BYTES // 2)
"""A sector with at most one bit set has at least so many zeros in a row."""
_MASKS_MAX = 255


def is_hollow(body: bytes) -> bool:
    """Whether a sector of this body may have less than two bits set."""
    return _HOLLOW in body


def hide(body: bytes, journal_id: int) -> tuple[int, bytes]:
    """A mask under which no sector is hollow, and the body under it."""
    for mask in range(1, _MASKS_MAX + 1):
        hidden = apply_mask(body, mask, journal_id)
        if not is_hollow(hidden):
            return mask, hidden
    raise AssertionError("a body cannot resemble all masks")


def apply_mask(body: bytes, mask: int, journal_id: int) -> bytes:
    """Hide, or show again: applied twice, a mask is gone."""
    pattern = np.resize(_pattern(mask, journal_id), len(body))
    return (np.frombuffer(body, np.uint8) ^ pattern).tobytes()


@lru_cache(16)
def _pattern(mask: int, journal_id: int) -> NDArray[np.uint8]:
    seed = mask.to_bytes(8, "little") + journal_id.to_bytes(8, "little")
    return np.frombuffer(shake_128(seed).digest(SECTOR_BYTES), np.uint8)
