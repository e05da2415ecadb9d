"""A transport that may be written to when it is closed: what is written then is lost, as it is a moment before.

uvloop raises in that case. But between the end of a connection and the moment at which its protocol hears of it, those
who answer cannot know.
"""

from __future__ import annotations

import asyncio
from typing import Any


class QuietTransport:
    """Does all else as the transport below does it."""

    __slots__ = ("_transport", "_write", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._write = transport.write
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self.is_closing():
            self._write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
