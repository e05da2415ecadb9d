"""The lease of a temporary subscription, with a server that can be away or have forgotten it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from tests.unit.client.consumers.test_prefetcher import in_loop

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queues import Done, Refused
from lavant.broker.protocol.subscriptions import (
    RenewSubscription,
    Subscribe,
    Subscribed,
    SubscriptionState,
    Unsubscribe,
)
from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.calls import Call
from lavant.client.connection.retries import Retries
from lavant.client.subscriptions import calls, lease
from lavant.client.subscriptions.lease import Lease, end_all
from lavant.core.errors import InvalidValue, LavantError, MissingComponent, UnknownSubscription

REQUEST = Subscribe("price > 1", "tmp-1", lease_ms=1_000)


class Server:
    """Knows the subscription or not; answers or not."""

    def __init__(self) -> None:
        self.is_known = True
        self.is_away = False
        self.asked: list[Request] = []
        self.heard = asyncio.Event()

    async def run(self, call: Call[Any], *, retries: Retries | None = None) -> Any:
        self.asked.append(call.request)
        self.heard.set()
        await asyncio.sleep(0)
        if self.is_away:
            raise MissingComponent("no server answers")
        return call.read(self._answer(call.request))

    def _answer(self, request: Request) -> Any:
        state = SubscriptionState(1, "tmp-1", "", "price > 1", "tmp-1", True, None, 0, lease_ms=1_000)
        if isinstance(request, Subscribe):
            was_known, self.is_known = self.is_known, True
            return Subscribed(state, is_new=not was_known)
        if not self.is_known:
            return Refused("UnknownSubscription", "there is no subscription 'tmp-1'")
        if isinstance(request, Unsubscribe):
            self.is_known = False
            return Done()
        assert isinstance(request, RenewSubscription)
        return Subscribed(state, is_new=False)

    def lease(self, request: Subscribe = REQUEST) -> Lease:
        return Lease(cast(AsyncConnection, self), request)

    async def times(self, kind: type, count: int) -> None:
        async with asyncio.timeout(10):
            while sum(isinstance(each, kind) for each in self.asked) < count:
                self.heard.clear()
                await self.heard.wait()


SHORT = Subscribe("price > 1", "tmp-1", lease_ms=3)
"""No server would accept it: so short that a test need not wait."""


@in_loop
async def test_it_is_renewed_again_and_again_until_it_is_stopped() -> None:
    server = Server()
    kept = server.lease(SHORT)
    kept.start()
    await server.times(RenewSubscription, 3)
    await kept.stop()
    asked = len(server.asked)
    await asyncio.sleep(0.02)
    assert (len(server.asked), kept.lapses) == (asked, 0)


@in_loop
async def test_what_has_ended_is_made_anew_and_counted() -> None:
    server = Server()
    server.is_known = False
    kept = server.lease()
    await kept.renew()
    await kept.renew()
    assert [type(each) for each in server.asked] == [RenewSubscription, Subscribe, RenewSubscription]
    assert server.asked[1] == REQUEST
    assert kept.lapses == 1


@in_loop
async def test_nothing_brings_back_what_has_ended_here() -> None:
    """Neither what comes late, say from receiving ahead, nor what had begun before."""
    server = Server()
    server.is_known = False
    kept = server.lease()
    begun = asyncio.ensure_future(kept.renew())
    await asyncio.sleep(0)
    late = asyncio.ensure_future(kept.renew())
    await kept.end()
    with pytest.raises(UnknownSubscription, match="ended here"):
        await late
    with pytest.raises(UnknownSubscription, match="ended here"):
        await kept.renew()
    await begun
    assert not server.is_known


def test_that_it_was_made_anew_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = Server()
        server.is_known = False
        await server.lease().renew()

    asyncio.run(scenario())
    assert "tmp-1 had ended at the server: this client was silent for 1 s" in caplog.text
    assert "missed" in caplog.text


@in_loop
async def test_a_server_that_is_away_is_asked_again() -> None:
    server = Server()
    server.is_away = True
    kept = server.lease(SHORT)
    kept.start()
    await server.times(RenewSubscription, 2)
    server.is_away = server.is_known = False
    await server.times(Subscribe, 1)
    await server.times(RenewSubscription, 4)
    await kept.end()
    assert kept.lapses == 1
    assert server.asked[-1] == Unsubscribe("tmp-1")


@in_loop
async def test_an_end_leaves_nothing_behind_and_may_come_twice() -> None:
    server = Server()
    kept = server.lease()
    kept.start()
    await end_all([kept])
    await end_all([kept])
    assert not server.is_known


def test_an_end_that_nobody_hears_is_told_and_raises_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Server):
        async def run(self, call: Call[Any], *, retries: Retries | None = None) -> Any:
            await asyncio.sleep(3600)

    async def scenario() -> None:
        away = Server()
        away.is_away = True
        await end_all([away.lease(), Silent().lease()])

    monkeypatch.setattr(lease, "END_S_MAX", 0.01)
    asyncio.run(scenario())
    ends = "could not be removed; its lease expires within 1 s"
    assert caplog.text.count(ends) == 2
    assert "no server answers" in caplog.text
    assert "the server does not answer" in caplog.text


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────────────────


def wanted(name: str = "", lease_s: float | None = None) -> Subscribe:
    return calls.subscription("a = 1", name=name, queue="", webhook=None, config=None, lease_s=lease_s)


def test_without_a_name_or_with_a_lease_it_is_temporary() -> None:
    assert (wanted().lease_ms, wanted("kept").lease_ms) == (60_000, 0)
    assert (wanted(lease_s=1.5).lease_ms, wanted("kept", 1.5).lease_ms) == (1_500, 1_500)
    assert wanted().name != wanted().name
    assert wanted("kept", 2).config == wanted().config != wanted("kept").config


@pytest.mark.parametrize("lease_s", [0, 0.999, -5, 86_401, float("1e300")])
def test_a_lease_has_bounds(lease_s: float) -> None:
    with pytest.raises(InvalidValue, match="lease_s must be between 1 and 86400, got"):
        wanted(lease_s=lease_s)


@pytest.mark.parametrize("lease_s", [float("nan"), float("inf")])
def test_a_lease_is_a_number(lease_s: float) -> None:
    with pytest.raises(LavantError, match=r"lease_s must be (between 1 and 86400|a number of seconds), got"):
        wanted(lease_s=lease_s)


@in_loop
async def test_what_is_made_again_has_the_filter_that_it_was_updated_to() -> None:
    server = Server()
    renewed = server.lease()
    renewed.updated("price > 2")
    server.is_known = False
    await renewed.renew()
    assert server.asked[-1] == msgspec.structs.replace(REQUEST, filter="price > 2")
