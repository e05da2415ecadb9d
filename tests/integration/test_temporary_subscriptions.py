"""Temporary subscriptions end with their clients, also if these or the server are killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Talker

from lavant import connect, connect_async

SYNCHRONOUS = """
import sys, time
from lavant import connect
subscription = connect(sys.argv[1]).subscribe("price > 100", lease_s=1)
print(subscription.name, flush=True)
for notification in subscription: pass
"""
ASYNCHRONOUS = """
import asyncio, sys
from lavant import connect_async
async def main():
    client = await connect_async(sys.argv[1])
    print((await client.subscribe("price > 100", lease_s=1)).name, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def subscriptions(server: Served) -> list[str]:
    with connect(server.url) as client:
        return [each.name for each in client.subscriptions()] + list(client.queues())


@pytest.mark.parametrize("is_receiving", [False, True])
def test_close_removes_it_right_after_the_server_was_killed_and_started_again(
    tmp_path: Path, is_receiving: bool
) -> None:
    with Served(tmp_path) as server:
        client = connect(server.url)
        subscription = client.subscribe("price > 100")
        if is_receiving:
            assert list(subscription.notifications(timeout_s=0.01)) == []
        server.kill()
        with Served(tmp_path, port=server.port) as again:
            subscription.close()
            assert subscriptions(again) == []
            client.close()


def test_an_asynchronous_client_removes_it_right_after_the_server_was_killed_and_started_again(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        client = await connect_async(server.url)
        subscription = await client.subscribe("price > 100")
        server.kill()
        with Served(tmp_path, port=server.port) as again:
            await subscription.close()
            await client.close()
            return subscriptions(again)

    with Served(tmp_path) as server:
        assert asyncio.run(scenario()) == []


def test_it_ends_with_a_client_that_is_killed_and_not_with_one_that_is_there() -> None:
    with Served(None) as server, connect(server.url) as client:
        mine = client.subscribe("price > 100", lease_s=1)
        command = [sys.executable, "-c"]
        programs = [
            subprocess.Popen([*command, code, server.url], stdout=subprocess.PIPE, text=True)
            for code in (SYNCHRONOUS, ASYNCHRONOUS)
        ]
        names = []
        for program in programs:
            assert program.stdout is not None
            names.append(program.stdout.readline().strip())
        assert {mine.name, *names} <= set(subscriptions(server))
        for program in programs:
            program.kill()
            program.communicate()
        until(lambda: subscriptions(server) == [mine.name, mine.queue])
        client.publish({"price": 121})
        assert [each.attributes["price"] for each in mine.notifications(count=1, timeout_s=WAIT_S_MAX)] == [121]
        assert mine.lapses == 0


def test_a_client_goes_on_with_it_after_the_server_was_killed_and_one_that_ended_is_made_anew(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        client = connect(server.url)
        kept = client.subscribe("price > 100", lease_s=5)
        client.publish({"price": 101})
        server.kill()
        with Served(tmp_path, port=server.port), connect(server.url) as other:
            assert [each.attributes["price"] for each in kept.notifications(count=1, timeout_s=WAIT_S_MAX)] == [101]
            assert kept.lapses == 0
            other.unsubscribe(kept.name)
            until(lambda: kept.lapses == 1)
            other.publish({"price": 102})
            assert [each.attributes["price"] for each in kept.notifications(count=1, timeout_s=WAIT_S_MAX)] == [102]
            client.close()
            assert list(other.subscriptions()) == []


def test_over_http_it_is_renewed_by_whoever_asks_and_ends_otherwise() -> None:
    with Served(None) as server, Talker(server) as talker:
        made = talker.ask("POST", "/subscriptions", {"filter": "a = 1", "name": "polled", "lease_ms": 1500})
        assert made.status == 201
        assert made.json["lease_ms"] == 1500
        [listed] = talker.ask("GET", "/subscriptions").json["subscriptions"]
        assert listed["expires_ms"] >= made.json["expires_ms"] > made.json["created_ms"]
        renewed = talker.ask("POST", "/subscriptions/polled/renew")
        assert (renewed.status, renewed.json["expires_ms"] > listed["expires_ms"]) == (200, True)
        talker.receive("polled", wait_ms=2500)
        assert talker.ask("GET", "/subscriptions/polled").status == 200
        until(lambda: talker.ask("GET", "/subscriptions/polled").status == 404)
        assert talker.ask("POST", "/subscriptions/polled/renew").status == 404
        assert talker.ask("POST", "/subscriptions", {"filter": "a = 1", "lease_ms": 1}).status == 400
        talker.ask("POST", "/subscriptions", {"filter": "a = 1", "name": "kept"})
        assert talker.ask("POST", "/subscriptions/kept/renew").status == 400
