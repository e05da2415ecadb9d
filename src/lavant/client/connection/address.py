"""The address of a server as a URL: `lavant://HOST:PORT`, or `lavants://HOST:PORT` with TLS."""

from __future__ import annotations

from typing import NamedTuple, Self
from urllib.parse import urlsplit

from lavant.core.errors import InvalidValue
from lavant.core.ports import QUEUES_PORT, QUEUES_URL

PLAIN, SECURE = "lavant", "lavants"


class Address(NamedTuple):
    """A server's host and port, and whether to use TLS.

    >>> Address.parse("lavant://127.0.0.1:9000")
    Address(host='127.0.0.1', port=9000, is_secure=False)
    >>> str(Address.parse("lavants://[::1]"))
    'lavants://[::1]:7324'
    """

    host: str
    port: int
    is_secure: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidValue(f"the server's address {url!r} cannot be read: {error}; write {QUEUES_URL}") from None
        is_bare = parts.path in {"", "/"} and not parts.query and not parts.username
        if parts.scheme not in {PLAIN, SECURE} or host is None or not is_bare:
            raise InvalidValue(f"the server's address must look like {QUEUES_URL} (or {SECURE}://…), got {url!r}")
        return cls(host, QUEUES_PORT if port is None else port, parts.scheme == SECURE)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SECURE if self.is_secure else PLAIN}://{host}:{self.port}"
