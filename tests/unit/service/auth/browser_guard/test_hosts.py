"""Which names a server answers to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.errors import InvalidValue
from lavant.service.auth.browser_guard import HostList

NAMES = ["queues.example", "only.example:7324", "*.svc.example", "Compose_Service"]
ports = st.none() | st.integers(1, 65535)


@given(address=st.ip_addresses(v=4) | st.ip_addresses(v=6), port=ports)
def test_every_address_is_accepted_with_any_port(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int | None
) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    assert (host if port is None else f"{host}:{port}") in HostList()


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.:7324",
        "queues.example",
        "Queues.Example.:80",
        "only.example:7324",
        "a.svc.example",
        "a.b.svc.example:9",
        "compose_service:7324",
    ],
)
def test_own_names_are_accepted(host: str) -> None:
    assert host in HostList(NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "xqueues.example",
        "queues.example.evil.test",
        "only.example",
        "only.example:7325",
        "svc.example",
        "xsvc.example",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "evil.localhost",
        "[localhost]",
        "[evil.example]",
        "",
        ".",
        ":7324",
        "queues.example:x",
        "queues.example:7324:1",
        "queues.example@evil.test",
        "a b",
        "queues.example/",
        "*.svc.example",
        "0x7f.1",
        "2130706433",
        "127.1",
        "::1",
        "queues.example, evil.test",
        "ÿ",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert host not in HostList(NAMES)


@pytest.mark.parametrize(
    "name", ["", "*", "*.", "a.*", "http://a", "a/b", "a:", "a:0", "a:65536", "a:b:1", "[::1]", "a b"]
)
def test_a_public_host_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="is not like queues"):
        HostList([name])


def test_there_are_only_so_many() -> None:
    with pytest.raises(InvalidValue, match="at most 100 public hosts, got 101"):
        HostList([f"a{number}" for number in range(101)])
