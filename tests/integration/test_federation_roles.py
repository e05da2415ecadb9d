"""Roles of brokers as real processes: clients of the wrong kind are redirected, follow, and are never locked out."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.federations import Broker, wait_for_members, wait_until
from typer.testing import CliRunner

import lavant
from lavant.broker.protocol.queues import Receive, Refused
from lavant.broker.protocol.subscriptions import Publish, Published, Subscribe, Subscribed
from lavant.cli.federation import federation
from lavant.core.addresses import http_address

AUTO = ("--role", "auto")


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[list[Broker]]:
    """Three brokers: the one in the middle is the head."""
    brokers = [Broker(tmp_path, "B1", options=AUTO)]
    brokers.append(Broker(tmp_path, "B2", brokers[0], options=AUTO))
    try:
        wait_for_members(*brokers)
        assert roles(brokers[0]) == {"B1": "any", "B2": "any"}
        brokers.append(Broker(tmp_path, "B3", brokers[1], options=AUTO))
        wait_for_members(*brokers)
        yield brokers
    finally:
        for each in brokers:
            each.kill()


def roles(broker: Broker) -> dict[str, str]:
    return {each["name"]: each["role"] for each in broker.view()["members"]}


def local(broker: Broker) -> list[str]:
    with broker.served.http("/federation/subscriptions") as response:
        return [each["name"] for each in json.load(response)["subscriptions"]]


def redirect_of(url: str, path: str, body: Any) -> str:
    """Where an HTTP request is redirected to."""

    class Unfollowed(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(http_address(url) + path, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.build_opener(Unfollowed).open(request)
    with raised.value as error:
        assert error.code == 307
        return error.headers["Location"]


def test_clients_go_to_brokers_of_their_role_and_nothing_is_lost(chain: list[Broker]) -> None:
    one, head, three = chain
    for each in chain:
        assert roles(each) == {"B1": "edge", "B2": "head", "B3": "edge"}
    shown = CliRunner().invoke(federation, ["tree", "--url", one.url]).output
    assert shown == "B1, edge\n└── B2, head\n    └── B3, edge\n"

    # A durable subscription is made at an edge; the head redirects its name, to other clients as well.
    with lavant.connect(head.url) as client, lavant.connect(head.url) as other:
        client.subscribe("price > 0", name="prices").close()
        places = [each for each in (one, three) if "prices" in local(each)]
        assert len(places) == 1
        assert local(head) == []
        queue = other.queue("prices")
        temporary = other.subscribe("volume > 5")
        [edge] = places
        wait_until(lambda: head.link(edge.name)["subscriptions"] > 0)

        # Publishers at edges publish at the head.
        with lavant.connect(one.url) as at_one, lavant.connect(three.url) as at_three:
            wait_until(lambda: sum(head.link(each)["subscriptions"] for each in ("B1", "B3")) == 2)
            at_one.publish_many([{"price": number} for number in range(1, 6)])
            at_three.publish({"price": 6, "volume": 6})
        assert one.link("B2")["forwarded"] == three.link("B2")["forwarded"] == 0
        wait_until(lambda: edge.depth("prices") == 6)
        received = queue.receive(10)
        assert len(received) == 6
        queue.acknowledge(*received)
        assert not edge.received("prices")
        assert next(iter(temporary)).attributes["price"] == 6
        temporary.close()

    async def publish() -> None:
        async with await lavant.connect_async(three.url) as client:
            await asyncio.gather(*(client.publish({"price": -1}) for _ in range(20)))

    asyncio.run(publish())

    # Without a client that follows: a redirect, and then the broker itself, once the client comes back.
    assert redirect_of(one.url, "/publish", {"price": 1}) == f"{http_address(head.url)}/publish"
    location = redirect_of(head.url, "/subscriptions", {"filter": "price > 0", "name": "over-http"})
    assert location in {f"{http_address(each.url)}/subscriptions" for each in (one, three)}
    with one.client() as bare:
        publish_one = Publish([b'{"price": -1}'], "key")
        refused = bare.ask(publish_one)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.address) == ("NotHead", head.url)
        assert isinstance(bare.ask(publish_one), Published)
    with one.client() as again:  # it was published here, so it is not published at the head as well
        assert isinstance(again.ask(publish_one), Published)
    with head.client() as bare:
        refused = bare.ask(Subscribe("price > 3", "bare"))
        assert isinstance(refused, Refused)
        assert refused.code == "NotEdge"
        moved = bare.ask(Receive("bare"))
        assert (moved.code, moved.address) == ("SubscriptionMoved", refused.address)
        assert isinstance(bare.ask(Subscribe("price > 3", "bare")), Subscribed)
    assert local(head) == ["bare"]

    # Without a head that can be reached, an edge serves publishers.
    head.kill()
    wait_until(lambda: one.link("B2")["state"] != "up")
    with lavant.connect(one.url) as client:
        client.publish({"price": 2})
    assert roles(one)["B2"] == "head"
    head.start()
