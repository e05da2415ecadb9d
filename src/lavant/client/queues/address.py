"""Where a server listens, as a URL: `lavant://HOST:PORT`."""

from __future__ import annotations

from typing import NamedTuple, Self
from urllib.parse import urlsplit

from lavant.core.errors import InvalidValue
from lavant.core.ports import QUEUES_PORT, QUEUES_URL


class Address(NamedTuple):
    """A server's host and port.

    >>> Address.parse("lavant://127.0.0.1:9000")
    Address(host='127.0.0.1', port=9000)
    >>> str(Address.parse("lavant://[::1]"))
    'lavant://[::1]:7324'
    """

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> Self:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidValue(f"the server's address {url!r} cannot be read: {error}; write {QUEUES_URL}") from None
        if parts.scheme != "lavant" or host is None or parts.path not in {"", "/"} or parts.query or parts.username:
            raise InvalidValue(f"the server's address must look like {QUEUES_URL}, got {url!r}")
        return cls(host, QUEUES_PORT if port is None else port)

    def __str__(self) -> str:
        return f"lavant://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"
