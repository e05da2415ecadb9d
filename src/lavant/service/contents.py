"""What messages hold. Those of publications are JSON; others may be sent to the same queue, and be anything."""

from __future__ import annotations

import msgspec

from lavant.core.decoding import UNDECODABLE


def is_json(body: bytes) -> bool:
    """
    >>> is_json(b'{"price":3}'), is_json(b"price=3")
    (True, False)
    """
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except UNDECODABLE:
        return False
    return True
