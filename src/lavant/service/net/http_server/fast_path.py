"""The fast path: one SQS request and its answer without ASGI.

SQS calls are many and small, and uvicorn's request cycle, with its scope, events and two writes per answer, took a good
part of their time. `FastPathExchange` stands in for it: uvicorn's protocol tells it when the client is gone, asks it
whether it is complete, and holds back pipelined requests until then.
"""

from __future__ import annotations

from collections.abc import Iterable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from lavant.service.aws.http import HttpRequest, HttpResponse
from lavant.service.aws.signature import Claim
from lavant.service.net.admission import NOTHING_RESERVED


class FastPathExchange:
    """Created when the head has arrived, for a request to `/` with a body of known length."""

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
        """uvicorn sets this event: see `set`."""
        self.claim: Claim | None = None
        """The claimed signature, not verified yet."""
        self.reservation = NOTHING_RESERVED
        """Memory for the body, until its signature is checked."""
        self._headers = headers
        self._all_headers = all_headers
        self._parts: list[bytes] = []

    def take(self, part: bytes) -> None:
        self._parts.append(part)

    def request(self) -> HttpRequest:
        """The request with the body that has arrived so far."""
        return HttpRequest("POST", "/", "/", b"", self._headers, self._all_headers, b"".join(self._parts))

    def set(self) -> None:
        """Does nothing: lost clients are noticed through the connection."""


def encode_response(
    response: HttpResponse, default_headers: Iterable[tuple[bytes, bytes]], *, keep_alive: bool
) -> bytes:
    """The whole response as bytes."""
    lines = [STATUS_LINE[response.status]]
    lines += [b"%b: %b\r\n" % header for header in default_headers]
    lines += [b"%b: %b\r\n" % header for header in response.headers]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"content-length: %d\r\n\r\n" % len(response.body))
    lines.append(response.body)
    return b"".join(lines)
