"""What a queue counts since it was created."""

from __future__ import annotations

import msgspec


class Totals(msgspec.Struct, array_like=True, gc=False):
    """For the meaning of each see `QueueFigures`, which shows them."""

    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    expired: int = 0
    returned: int = 0
    dead_lettered: int = 0
    deduplicated: int = 0
