"""Which addresses webhooks may have, against the IANA registries of special-purpose addresses."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.service.delivery.webhooks.addresses import WebhookFault, is_public, resolve

SPECIAL_4 = [
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32",
    "192.0.0.171/32", "192.0.2.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "232.0.0.0/8", "239.0.0.0/8", "240.0.0.0/4",
    "255.255.255.255/32",
]  # fmt: skip
SPECIAL_6 = [
    "::/128", "::1/128", "::/96", "::ffff:0:0/112", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23",
    "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48",
    "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7",
    "fd00:ec2::/32", "fe80::/10", "fec0::/10", "ff00::/8", "ff02::/16", "ff0e::/16", "4000::/3", "6000::/3",
    "8000::/3", "a000::/3", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/9", "200::/7", "400::/6",
    "800::/5", "1000::/4",
]  # fmt: skip
GLOBAL = ["1.1.1.1", "8.8.8.8", "93.184.215.14", "192.31.196.1", "192.52.193.1", "192.175.48.1", "172.15.255.255",
          "172.32.0.0", "100.63.255.255", "100.128.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"]  # fmt: skip
GLOBAL_6 = ["2606:2800::1", "2a00:1450:4001::1", "2620:4f:8000::1", "2001:200::1", "2001:db7::1", "2003::1", "3ffe::1"]


def inside(network: IPv4Network | IPv6Network) -> st.SearchStrategy[int]:
    first, last = int(network.network_address), int(network.broadcast_address)
    return st.one_of(st.just(first), st.just(last), st.integers(first, last))


def carriers(address: IPv4Address) -> list[str]:
    """IPv6 addresses that lead to this one."""
    low = int(address)
    return [
        str(IPv6Address((0xFFFF << 32) | low)),
        str(IPv6Address((0x64FF9B << 96) | low)),
        str(IPv6Address((0x2002 << 112) | (low << 80) | 1)),
    ]


@pytest.mark.parametrize("network", [*SPECIAL_4, *SPECIAL_6])
@given(data=st.data())
def test_no_address_of_a_special_range_is_public(network: str, data: st.DataObject) -> None:
    found = ip_network(network)
    number = data.draw(inside(found))
    address = IPv4Address(number) if found.version == 4 else IPv6Address(number)
    assert not is_public(str(address))
    if isinstance(address, IPv4Address):
        assert not any(map(is_public, carriers(address)))


@pytest.mark.parametrize("address", GLOBAL)
def test_addresses_between_the_ranges_are_public_also_when_they_are_carried(address: str) -> None:
    assert is_public(address)
    assert all(map(is_public, carriers(IPv4Address(address))))


@pytest.mark.parametrize("address", GLOBAL_6)
def test_global_unicast_is_public(address: str) -> None:
    assert is_public(address)
    assert not is_public(f"{address}%eth0"), "an address with a zone is of this machine's links"


@pytest.mark.parametrize(
    "host", ["fec0::1", "64:ff9b:1::a00:1", "::10.0.0.1", "2130706433", "0x7f.1", "0", "127.1", "0.0.0.0", "::"]
)
def test_no_way_of_writing_an_address_leads_inside(host: str) -> None:
    with pytest.raises(WebhookFault):
        asyncio.run(resolve(host, 80, to_private=False))
