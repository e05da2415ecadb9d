"""Where webhooks may be: a server must not be made to call into its own network by whoever can subscribe.

Names are resolved here, checked, and the connection goes to the very address that was checked. So a name that leads
elsewhere the next time it is asked for is of no use.

An address is public if it is unicast, in no range of the IANA registries of special-purpose addresses, and if the same
holds for the IPv4 address that it may stand for: mapped, translated (NAT64) or 6to4. The registries grow, and what
Python knows of them depends on its version, so the ranges are written down here, and Python must agree.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from lavant.core.errors import Unavailable

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
            "192.88.99.0/24",  # 6to4 relays, which are no more
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
"""All global unicast addresses that IANA has given out. Outside are this machine, link-local, site-local, unique local,
multicast and IPv4-compatible addresses, `64:ff9b:1::/48` for translation inside of a network, and what is reserved."""
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
    """A request to a webhook that came to nothing."""


async def resolve(host: str, port: int, *, to_private: bool) -> list[str]:
    """The addresses behind a name that may be called; raises if there is none."""
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
    """Whether it is anywhere on the internet, and not on this machine or in a network of its owner.

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
