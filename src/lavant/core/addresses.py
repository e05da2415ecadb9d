"""The address of a server as a URL: `lavant://HOST:PORT`, or `lavants://HOST:PORT` with TLS."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple, Self

from lavant.core.errors import InvalidValue

PLAIN, SECURE = "lavant", "lavants"
QUEUES_PORT = 7324
"""Where a server listens by default."""
QUEUES_URL = f"{PLAIN}://127.0.0.1:{QUEUES_PORT}"
"""Where clients look for it."""
PORT_MAX = 65535

_URL = re.compile(rf"({PLAIN}|{SECURE})://(?:\[([0-9A-Fa-f:.]+)\]|([^\s/?#@:\[\]]+))(?::([0-9]{{1,5}}))?/?")


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
        found = _URL.fullmatch(url) if isinstance(url, str) else None
        if found is None:
            raise InvalidValue(f"the server's address must look like {QUEUES_URL} (or {SECURE}://…), got {url!r:.100}")
        scheme, six, name, digits = found.groups()
        port = QUEUES_PORT if digits is None else int(digits)
        if port > PORT_MAX:
            raise InvalidValue(f"the port of {url!r} is at most {PORT_MAX}; write {QUEUES_URL}")
        return cls((name if six is None else six).lower(), port, scheme == SECURE)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SECURE if self.is_secure else PLAIN}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "queues.example")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def http_address(address: str) -> str:
    """The address of a broker for HTTP, without a path.

    >>> http_address("lavants://b2.example:7324")
    'https://b2.example:7324'
    """
    return address.replace("lavants://", "https://", 1).replace("lavant://", "http://", 1)
