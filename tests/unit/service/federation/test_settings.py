"""Settings of a broker in a federation: what would be unsafe or ambiguous is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lavant.broker.federation.routes.roles import BrokerRole
from lavant.cli.server.serve import EngineName, _federation
from lavant.core.addresses import Address
from lavant.core.errors import InvalidValue
from lavant.service.federation.balancing.settings import BalancingSettings, BrokerCapacity
from lavant.service.federation.settings import NEIGHBOURS_MAX, FederationSettings

OPTIONS = {
    "name": None,
    "join": None,
    "join_key": "",
    "join_ca_file": None,
    "role": None,
    "require_advertisements": False,
    "client_address": None,
    "balance": False,
    "bandwidth": None,
    "matching_rate": None,
    "engine": EngineName.LOCAL,
}
LOCAL = Address("127.0.0.1", 7324)


def test_links_on_this_machine_need_nothing() -> None:
    settings = FederationSettings(name="B1", joins=(LOCAL, Address("::1", 7325), Address("localhost", 7326)))
    assert settings.tls() is None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 81, "B1\n"])
def test_a_name_is_short_and_plain(name: str) -> None:
    with pytest.raises(InvalidValue, match="a broker's name consists of"):
        FederationSettings(name=name)


@pytest.mark.parametrize("key", ["", "lavant_x"])
@pytest.mark.parametrize("is_secure", [False, True])
@pytest.mark.parametrize("host", ["10.0.0.7", "queues.example", "0.0.0.0", "fe80::1"])
def test_links_to_other_machines_need_tls_and_a_key(host: str, is_secure: bool, key: str) -> None:
    address = Address(host, 7324, is_secure)
    if is_secure and key:
        assert FederationSettings(name="B1", joins=(address,), key=key).tls() is not None
    else:
        with pytest.raises(InvalidValue, match="needs TLS and a key"):
            FederationSettings(name="B1", joins=(address,), key=key)


def test_an_address_is_joined_once_and_not_too_many_are() -> None:
    with pytest.raises(InvalidValue, match="given twice"):
        FederationSettings(name="B1", joins=(LOCAL, LOCAL))
    many = tuple(Address("127.0.0.1", port) for port in range(1, NEIGHBOURS_MAX + 2))
    with pytest.raises(InvalidValue, match="at most 64"):
        FederationSettings(name="B1", joins=many)


def test_certificates_are_read_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="there is none"):
        FederationSettings(name="B1", joins=(LOCAL,), ca_file=tmp_path / "ca.pem")
    settings = FederationSettings(name="B1", joins=(Address("localhost", 1, True),), ca_file=tmp_path / "ca.pem")
    with pytest.raises(InvalidValue, match=r"--join-ca-file .* cannot be read"):
        settings.tls()


@pytest.mark.parametrize(
    "option",
    [
        {"join": ["lavant://127.0.0.1"]},
        {"join_key": "k"},
        {"join_ca_file": Path("c")},
        {"role": BrokerRole.HEAD},
        {"require_advertisements": True},
        {"balance": True},
        {"bandwidth": "1M"},
        {"matching_rate": 5.0},
    ],
)
def test_whatever_is_about_joining_needs_a_name(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="needs --name"):
        _federation({**OPTIONS, **option})


def test_links_need_the_local_engine() -> None:
    with pytest.raises(InvalidValue, match="the local engine"):
        _federation({**OPTIONS, "name": "B1", "engine": EngineName.SPARK})


def test_capacities_are_read_and_checked() -> None:
    given = {**OPTIONS, "name": "B1", "balance": True, "bandwidth": "2k", "matching_rate": 50.0}
    settings = _federation(given)
    assert settings is not None
    capacity = BrokerCapacity(bandwidth_bytes_per_s=2048, matching_rate_per_s=50)
    assert settings.balancing == BalancingSettings(is_on=True, capacity=capacity)
    with pytest.raises(InvalidValue, match="--bandwidth must be positive, got 0"):
        _federation({**given, "bandwidth": "0"})
    with pytest.raises(InvalidValue, match="'fast' is not a number of bytes"):
        _federation({**given, "bandwidth": "fast"})
    with pytest.raises(InvalidValue, match="--matching-rate must be positive, got -1"):
        _federation({**given, "matching_rate": -1.0})
