"""One request and its answer where nothing is streamed, without ASGI in between.

Calls of SQS are many and small, and uvicorn's own cycle, with its scope, its events and an answer in two writes, took a
good part of their time. This stands in for it in the eyes of uvicorn's protocol, which tells it when the client is
gone, asks it whether it is over, and holds back what the client sends before that.
"""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from lavant.service.aws.http import HttpRequest, HttpResponse
from lavant.service.aws.signature import Claim
from lavant.service.net.admission import NOTHING_RESERVED


class FastPathExchange:
    """Made when the head has arrived, at the root of the server and with a body of known length."""

    __slots__ = (
        "_all_headers",
        "_headers",
        "_parts",
        "claim",
        "disconnected",
        "keep_alive",
        "message_event",
        "reservation",
        "response_complete",
    )

    def __init__(
        self, headers: dict[bytes, bytes], all_headers: list[tuple[bytes, bytes]], *, keep_alive: bool
    ) -> None:
        self.keep_alive = keep_alive
        self.disconnected = False
        self.response_complete = False
        self.message_event = self
        """Where uvicorn says that something has happened: see `set`."""
        self.claim: Claim | None = None
        """Who says to have signed it."""
        self.reservation = NOTHING_RESERVED
        """For the body, until that is checked."""
        self._headers = headers
        self._all_headers = all_headers
        self._parts: list[bytes] = []

    def take(self, part: bytes) -> None:
        self._parts.append(part)

    def request(self) -> HttpRequest:
        """As far as its body has arrived."""
        return HttpRequest("POST", "/", "/", b"", self._headers, self._all_headers, b"".join(self._parts))

    def set(self) -> None:
        """Nobody waits for it: whoever has to know that the client is gone watches the connection."""


def encode_response(
    response: HttpResponse, default_headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool
) -> bytes:
    """In one piece."""
    lines = [STATUS_LINE[response.status]]
    lines += [b"%b: %b\r\n" % header for header in default_headers]
    lines += [b"%b: %b\r\n" % header for header in response.headers]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"content-length: %d\r\n\r\n" % len(response.body))
    lines.append(response.body)
    return b"".join(lines)
