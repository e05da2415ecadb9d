"""The host names of a server: the allowed values of the header `Host`.

A page can make its own name resolve to the address of any server, even one on this machine (DNS rebinding). The browser
then treats page and server as one origin, and only `Host` shows the requested name. An IP address cannot be rebound, so
all addresses are accepted: probes of Kubernetes and load balancers use them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from lavant.core.errors import InvalidValue

HOSTS_MAX = 100
"""Names of a server."""
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{1,260})(?::([0-9]{1,5})?)?")
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){0,125}")


class Authority(NamedTuple):
    """Host and optional port of a URL."""

    host: str
    """In lower case, without the dot at its end; an IPv6 address without brackets."""
    port: int | None


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def authority_of(text: str) -> Authority | None:
    """
    >>> authority_of("Queues.Example.:7324"), authority_of("[::1]:80"), authority_of("user@host")
    (Authority(host='queues.example', port=7324), Authority(host='::1', port=80), None)
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    host = found[1].lower()
    host = host[1:-1] if host.startswith("[") else host.removesuffix(".")
    return Authority(host, None if found[2] is None else int(found[2]))


class HostList:
    """`localhost`, every IP address, and `names`: `queues.example`, `queues.example:7324` or `*.queues.example`.

    >>> hosts = HostList(["queues.example", "*.lavant.svc"])
    >>> [name in hosts for name in ("localhost:1", "10.0.0.7:7324", "queues.example:80", "a.lavant.svc", "evil.test")]
    [True, True, True, True, False]
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        if len(self.names) > HOSTS_MAX:
            raise InvalidValue(f"a server has at most {HOSTS_MAX} public hosts, got {len(self.names)}; use *.DOMAIN")
        self._known = {_public_host(name) for name in self.names} | {Authority("localhost", None)}

    def __contains__(self, host: str) -> bool:
        asked = authority_of(host)
        return asked is not None and (is_address(asked.host) or not self._known.isdisjoint(_matching(asked)))


def _matching(asked: Authority) -> Iterable[Authority]:
    """All entries that would accept a host: the name, and its domains after a `*`."""
    labels = asked.host.split(".")
    for host in (asked.host, *(f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))):
        yield Authority(host, None)
        yield Authority(host, asked.port)


def _public_host(text: str) -> Authority:
    host, _, port = text.partition(":")
    host = host.lower().removesuffix(".")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
    if _NAME.fullmatch(host) is None or not (is_port or text.count(":") == 0):
        raise InvalidValue(
            f"the public host {text[:80]!r} is not like queues.example, queues.example:7324 or *.queues.example; "
            "give a name of that form; IP addresses are always accepted"
        )
    return Authority(host, int(port) if port else None)
