"""What is refused is not subscribed to: options are checked before the server is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lavant.client.async_client import AsyncClient
from lavant.client.client import Client
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.connection.settings import ConnectionSettings
from lavant.core.errors import InvalidValue

NOBODY = ConnectionSettings.of("lavant://127.0.0.1:1", key="", ca_file=None, timeout_s=1, retries=NO_RETRIES)
"""Whoever asks there hears `MissingComponent`."""
WRONG: list[dict[str, Any]] = [
    {"prefetch": 0},
    {"prefetch": 1001},
    {"visibility_s": 0.5},
    {"visibility_s": float("nan")},
    {"workers": 0},
    {"lease_s": 0},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_are_checked_before_the_server_is_asked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options))):
        Client(NOBODY).subscribe("a = 1", name="x", **options)
    with pytest.raises(InvalidValue, match=next(iter(options))):
        asyncio.run(AsyncClient(NOBODY).subscribe("a = 1", name="x", **options))
