"""Addresses of servers."""

from __future__ import annotations

import pytest

from lavant.core.addresses import Address
from lavant.core.errors import InvalidValue


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("lavant://127.0.0.1:9000", "127.0.0.1", 9000),
        ("lavant://queues.example", "queues.example", 7324),
        ("lavant://[::1]:80/", "::1", 80),
    ],
)
def test_an_address_has_a_host_and_a_port(url: str, host: str, port: int) -> None:
    assert Address.parse(url) == (host, port, False)
    assert Address.parse(url.replace("lavant", "lavants", 1)) == (host, port, True)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:9000", "http://127.0.0.1:9000", "lavant://", "lavant://h:99999", "lavant://h:1/q", "lavant://me@h"],
)
def test_anything_else_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"lavant://127.0.0.1:7324"):
        Address.parse(url)


@pytest.mark.parametrize("url", ["lavant://127.0.0.1:9000", "lavants://[::1]:80"])
def test_an_address_is_shown_as_it_is_written(url: str) -> None:
    assert str(Address.parse(url)) == url
