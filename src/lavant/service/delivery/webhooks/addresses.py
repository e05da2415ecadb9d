"""Addresses of webhooks: which URLs can be called, and which networks a subscriber may have the server call.

Names are resolved and checked here, and the connection goes to the address that was checked. A name that resolves to
another address the next time gains nothing.

An address is public if it is unicast, in no range of the IANA registries of special-purpose addresses, and if the same
holds for the IPv4 address that it may stand for: mapped, translated (NAT64) or 6to4. The registries grow, and Python's
own tables depend on its version, so the ranges are listed here, and Python must agree.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from lavant.broker.subscriptions.limits import URL_CHARACTERS_MAX
from lavant.core.errors import InvalidValue, LimitExceeded, Unavailable

_URL_PARTS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?P<fragment>#.*)?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>.*))?")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_TARGET = re.compile(r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
_HOST_CHARACTERS_MAX = 253
_PORT_MAX = 65535

_PRIVATE_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by customers of a provider
            "127.0.0.0/8",  # this machine
            "169.254.0.0/16",  # link-local, where clouds keep credentials
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # former 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_PUBLIC_6 = IPv6Network("2000::/3")
"""All global unicast addresses that IANA has assigned. Outside are this machine, link-local, site-local, unique local,
multicast and IPv4-compatible addresses, `64:ff9b:1::/48` for translation inside a network, and reserved addresses."""
_PRIVATE_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


class WebhookFault(Unavailable):
    """A request to a webhook failed."""


def check_address(url: str) -> None:
    """Raises unless a URL can be called. A replay skips this: a journal may hold URLs accepted by older rules."""
    parts = _URL_PARTS.fullmatch(url)
    if parts is None or parts["scheme"].lower() not in ("http", "https"):
        raise InvalidValue(f"a webhook's address must begin with http:// or https://, got {url[:80]!r}")
    if len(url) > URL_CHARACTERS_MAX:
        raise LimitExceeded(f"a webhook's address has {len(url)} characters, at most {URL_CHARACTERS_MAX} are allowed")
    if "@" in parts["authority"]:
        raise InvalidValue("a webhook's address contains a user or password; use a secret, which signs each request")
    if parts["fragment"] is not None:
        raise InvalidValue(f"a webhook's address has a fragment, {parts['fragment'][:40]!r}; leave it out")
    if _TARGET.fullmatch(parts["target"]) is None:
        raise InvalidValue(f"the path of a webhook's address must be percent-encoded, got {parts['target'][:80]!r}")
    host = _HOST.fullmatch(parts["authority"])
    if host is None or not _is_host(host["host"]):
        raise InvalidValue(
            f"the host of a webhook's address is not a valid name or address: {parts['authority'][:80]!r}"
        )
    port = host["port"]
    if port is not None and not (port.isascii() and port.isdecimal() and 1 <= int(port[:9]) <= _PORT_MAX):
        raise InvalidValue(f"the port of a webhook's address must be between 1 and {_PORT_MAX}, got {port[:20]!r}")


def _is_host(host: str) -> bool:
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return True
    labels = host.removesuffix(".").split(".")
    return len(host) <= _HOST_CHARACTERS_MAX and all(_LABEL.fullmatch(label) is not None for label in labels)


async def resolve(host: str, port: int, *, to_private: bool) -> list[str]:
    """Resolves a name, and returns the addresses that may be called; raises if there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        raise WebhookFault(f"the name {host!r} cannot be resolved: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if to_private or is_public(address)]
    if not allowed:
        raise WebhookFault(
            f"{host!r} is at {', '.join(addresses)}, in a network that webhooks may not be in; "
            "start the server with --webhooks-to-private-networks if they may"
        )
    return allowed


def is_public(address: str) -> bool:
    """Whether an address is on the internet, and neither on this machine nor in a private network.

    >>> [is_public(address) for address in ("93.184.215.14", "127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1")]
    [True, False, False, False, False]
    >>> [is_public(address) for address in ("2606:2800::1", "::1", "fe80::1%eth0", "fec0::1", "64:ff9b:1::a00:1")]
    [True, False, False, False, False]
    >>> [is_public(address) for address in ("::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b::5db8:d70e", "2002:a00:1::1")]
    [False, False, True, False]
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, IPv4Address):
        return _is_public_4(parsed)
    if parsed.scope_id is not None:
        return False
    if parsed.ipv4_mapped is not None:
        return _is_public_4(parsed.ipv4_mapped)
    if parsed in _NAT64:
        return _is_public_4(IPv4Address(int(parsed) & 0xFFFF_FFFF))
    if parsed.sixtofour is not None:
        return _is_public_4(parsed.sixtofour)
    return parsed in _PUBLIC_6 and parsed.is_global and not any(parsed in network for network in _PRIVATE_6)


def _is_public_4(address: IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _PRIVATE_4)
