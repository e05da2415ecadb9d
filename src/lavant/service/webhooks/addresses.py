"""Where webhooks may be: a server must not be made to call into its own network by whoever can subscribe.

Names are resolved here, checked, and the connection goes to the very address that was checked. So a name that leads
elsewhere the next time it is asked for is of no use.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from lavant.core.errors import LavantError

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebhookFault(LavantError):
    """A request to a webhook that came to nothing."""


async def resolve(host: str, port: int, *, to_private: bool) -> list[str]:
    """The addresses behind a name that may be called; raises if there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
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
    >>> [is_public(address) for address in ("2606:2800::1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "64:ff9b::a00:1")]
    [True, False, False, False, False]
    """
    return all(each.is_global and not each.is_multicast for each in _inside(ipaddress.ip_address(address)))


def _inside(address: _Address) -> list[_Address]:
    """The address, and one that it stands for in a network of the other kind."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address.sixtofour
    return [address] if embedded is None else [address, embedded]
