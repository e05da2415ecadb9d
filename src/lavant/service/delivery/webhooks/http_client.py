"""A small HTTP/1.1 client that posts, and returns the status and Retry-After of the answer.

Time, head and body of an answer are bounded. Redirects are not followed, certificates are verified, and connections are
kept alive if the answer allows it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

import httptools
import msgspec

from lavant.service.delivery.webhooks.addresses import WebhookFault, resolve

HEAD_BYTES_MAX = 64 << 10
READ_BYTES = 64 << 10
IDLE_S_MAX = 15.0
"""How long an idle connection is kept alive."""


class Posted(msgspec.Struct, frozen=True):
    """The answer to a request."""

    status: int
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Idle:
    """Bounds the idle connections of all clients; the oldest is closed first."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._lists: dict[_Connection, list[_Connection]] = {}
        """The list that holds each connection; oldest first."""

    def put(self, connection: _Connection, own: list[_Connection]) -> None:
        own.append(connection)
        self._lists[connection] = own
        if len(self._lists) > self._size_max:
            oldest = next(iter(self._lists))
            self._lists.pop(oldest).remove(oldest)
            oldest.close()

    def take(self, own: list[_Connection]) -> _Connection:
        connection = own.pop()
        del self._lists[connection]
        return connection


class WebhookClient:
    """Posts to one address. `idle` bounds the idle connections of all clients."""

    def __init__(
        self, url: str, idle: Idle, *, to_private: bool, context: ssl.SSLContext, answer_bytes_max: int
    ) -> None:
        self._to_private = to_private
        self._context = context
        self._answer_bytes_max = answer_bytes_max
        self._url = _parts(url)
        self._all_idle = idle
        self._idle: list[_Connection] = []

    async def post(self, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Posted:
        """Posts, and returns the answer; raises a `WebhookFault` if none came."""
        request = _head(self._url, headers, len(body)) + body
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(request)
        except TimeoutError:
            raise WebhookFault(f"no answer within {timeout_s:g} s") from None
        except (OSError, EOFError, httptools.HttpParserError) as error:
            raise WebhookFault(f"{type(error).__name__}: {error}") from None

    def close_idle(self) -> None:
        """Closes idle connections."""
        while self._idle:
            self._all_idle.take(self._idle).close()

    async def _exchange(self, request: bytes) -> Posted:
        while self._idle:
            connection = self._all_idle.take(self._idle)
            if connection.is_stale:
                connection.close()
                continue
            try:
                return await self._exchange_on(connection, request)
            except (OSError, EOFError):  # an idle connection was closed: this is no fault of the receiver
                break
        return await self._exchange_on(await self._connect(), request)

    async def _exchange_on(self, connection: _Connection, request: bytes) -> Posted:
        can_stay = False
        try:
            posted, can_stay = await connection.exchange(request, self._answer_bytes_max)
        finally:
            if can_stay:
                self._all_idle.put(connection, self._idle)
            else:
                connection.close()
        return posted

    async def _connect(self) -> _Connection:
        host, is_secure = self._url.hostname, self._url.scheme == "https"
        assert host is not None
        port = self._url.port
        if port is None:
            port = 443 if is_secure else 80
        fault: OSError = OSError("no address")
        for address in await resolve(host, port, to_private=self._to_private):
            try:
                reader, writer = await asyncio.open_connection(
                    address,
                    port,
                    limit=READ_BYTES,
                    ssl=self._context if is_secure else None,
                    server_hostname=host if is_secure else None,
                )
            except OSError as error:
                fault = error
            else:
                return _Connection(reader, writer)
        raise fault


class _Connection:
    """One connection, for sequential requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._used_s = time.monotonic()

    @property
    def is_stale(self) -> bool:
        is_over = self._reader.at_eof() or self._writer.is_closing()
        return is_over or time.monotonic() - self._used_s > IDLE_S_MAX

    async def exchange(self, request: bytes, answer_bytes_max: int) -> tuple[Posted, bool]:
        """Posts, and returns the answer and whether the connection can be kept alive."""
        self._writer.write(request)
        await self._writer.drain()
        answer = _Answer()
        while not answer.is_complete:
            data = await self._reader.read(READ_BYTES)
            if not data:
                if answer.status == 0:
                    raise EOFError("the connection was closed before an answer came")
                return answer.posted(), False
            answer.feed(data)
            if answer.status == 0:
                if answer.size_bytes > HEAD_BYTES_MAX:
                    raise WebhookFault(f"the head of the answer has more than {HEAD_BYTES_MAX} bytes")
            elif answer.size_bytes > answer_bytes_max:
                return answer.posted(), False
        self._used_s = time.monotonic()
        return answer.posted(), answer.can_stay

    def close(self) -> None:
        # Not `close`, which waits until the receiver has read everything.
        self._writer.transport.abort()


class _Answer:
    """Parses the head of an answer."""

    def __init__(self) -> None:
        self.status = 0
        self.size_bytes = 0
        self.is_complete = False
        self.can_stay = False
        self._retry_after = ""
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self.size_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # unsolicited
            self.is_complete = True

    def posted(self) -> Posted:
        return Posted(self.status, retry_after_s(self._retry_after, time.time()))

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # others are interim answers
            self.status = status
            self.can_stay = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        self.is_complete = self.status != 0


def retry_after_s(text: str, now_s: float) -> float | None:
    """Parses a Retry-After header, in seconds or as a date; None if it is neither.

    >>> retry_after_s("120", 0), retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", 0), retry_after_s("soon", 0)
    (120.0, 60.0, None)
    """
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if url.isascii() and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise WebhookFault(f"{url[:80]!r} cannot be called; write it with ASCII characters only, the rest encoded")


def _head(url: SplitResult, headers: Mapping[str, str], body_bytes: int) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    host = url.netloc.rpartition("@")[2]
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {body_bytes}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
