"""Encrypted clients: what is published comes out as it went in, and the server never has it in plain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.serving import Served

from lavant import Key, NumericAttribute, Publication, Schema, connect, connect_async
from lavant.core.errors import InvalidValue, PartlyRefused

WAIT_S = 20.0
SCHEMA = Schema.of(NumericAttribute("price", 0, 1000, 0.01), NumericAttribute("volume", 0, 10**7, 1))
SECRETS = [b"IBM-4711", b"customer Meyer", b"987.65", b"1234567", b"symbol", b"price"]


def test_an_encrypted_publication_reaches_whom_it_concerns_and_the_server_reads_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Key.generate(SCHEMA).save(tmp_path / "key.json")
    key = Key.load(tmp_path / "key.json")
    with Served(tmp_path / "data") as server:
        with (
            connect(server.url, encryption=key) as client,
            client.subscribe("price >= 900 and volume > 1000000", name="large") as large,
            client.subscribe("price < 10") as cheap,
        ):
            id = client.publish({"symbol": "IBM-4711", "price": 987.65, "volume": 1234567}, payload=b"customer Meyer")
            with pytest.raises(PartlyRefused) as raised:
                client.publish_many([{"price": 5, "volume": 1}, {"price": 5}, {"price": 6.5, "volume": 2}])
            assert list(raised.value.refused) == [1]
            assert "volume" in str(raised.value)
            with pytest.raises(InvalidValue, match="symbol"):
                client.subscribe("symbol = 'IBM-4711'")
            [found] = large.notifications(count=1, timeout_s=WAIT_S)
            assert (found.id, found.payload) == (id, b"customer Meyer")
            assert found.attributes == {"symbol": "IBM-4711", "price": 987.65, "volume": 1234567}
            prices = [each.attributes["price"] for each in cheap.notifications(count=2, timeout_s=WAIT_S)]
            assert prices == [5, 6.5]

        asyncio.run(_publish_asynchronously(server.url, key))
        with connect(server.url) as careless:
            careless.subscribe("told = true", name="careless")
            careless.publish({"told": True, "said": "no secret"})
        with connect(server.url, encryption=Key.generate(SCHEMA)) as stranger:
            known = stranger.subscription("large")
            assert list(known.notifications(timeout_s=0.5)) == [], "it cannot be read, and comes again for others"
            known.close()
            assert "sealed with another key" in caplog.text
        server.stop()
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert id.encode() in kept, "ids are plain"
    assert b"no secret" in kept, "what is not encrypted can be read"
    assert [secret for secret in SECRETS if secret in kept] == []


async def _publish_asynchronously(url: str, key: Key) -> None:
    async with await connect_async(url, encryption=key) as client, await client.subscribe("price > 500") as dear:
        await client.publish(Publication(attributes={"price": 987.65, "volume": 1234567}, payload=b"customer Meyer"))
        [found] = [each async for each in dear.notifications(count=1, timeout_s=WAIT_S)]
        assert (found.attributes["price"], found.payload) == (987.65, b"customer Meyer")
