"""A webhook's address is looked at whole when somebody subscribes, and not again in a replay."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.service.wiring import Wiring, in_loop

from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import Subscribe, Subscribed, Webhook
from lavant.broker.subscriptions.limits import URL_CHARACTERS_MAX
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded
from lavant.service.delivery.registry import Deliveries
from lavant.service.delivery.webhooks.addresses import check_address

GOOD = [
    "http://x.org",
    "https://x.org/",
    "HTTPS://X.org/a/b?c=d&e=%20f",
    "http://x.org:1",
    "http://x.org:65535/",
    "http://x.org.:80/",
    "http://127.0.0.1:8080/hook",
    "http://[::1]:8080/hook",
    "http://[2606:2800::1]",
    "http://a_b.local/?q=@me:you",
    f"http://x.org/{'a' * (URL_CHARACTERS_MAX - 13)}",
    f"http://{'a' * 63}.org",
]
BAD = [
    "",
    "x.org",
    "//x.org",
    "ftp://x.org",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http://",
    "http:///path",
    "http://?q",
    "http://:80/",
    "http://x.org:",
    "http://x.org:0",
    "http://x.org:65536",
    "http://x.org:99999",
    "http://x.org:-1",
    "http://x.org:+80",
    "http://x.org:8O",
    "http://x.org:٣",
    "http://x.org:80:80",
    "http://user@x.org",
    "http://user:password@x.org/",
    "http://x.org@y.org",
    "http://x.org#here",
    "http://x.org/#",
    "http://x org/",
    "http://x.org/a b",
    "http://x.org/a\tb",
    "http://x.org/a\r\nHost: y",
    "http://x.org\\@y.org/",
    "http://x.org/a\\b",
    "http://x.org/%",
    "http://x.org/%zz",
    "http://münchen.de",
    "http://x.org/ü",
    "http://-x.org",
    "http://x-.org",
    "http://x..org",
    "http://.",
    f"http://{'a' * 64}.org",
    f"http://{'.'.join(['a' * 60] * 5)}",
    "http://[::1",
    "http://::1/",
    "http://[::1]]",
    "http://[fe80::1%eth0]/",
    "http://[x.org]/",
    "http://[]/",
    "http://[12345::]/",
]


@pytest.mark.parametrize("url", GOOD)
def test_an_address_that_can_be_called_is_accepted(url: str) -> None:
    check_address(url)


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_cannot_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue):
        check_address(url)


def test_one_that_is_too_long_is_refused_too() -> None:
    with pytest.raises(LimitExceeded):
        check_address("http://x.org/" + "a" * URL_CHARACTERS_MAX)


def test_an_error_does_not_repeat_a_password() -> None:
    with pytest.raises(LavantError) as refused:
        check_address("http://user:swordfish@x.org/")
    assert "swordfish" not in str(refused.value)


@in_loop
async def test_it_is_checked_when_somebody_subscribes_and_not_in_a_replay() -> None:
    request = Subscribe("a = 1", "s", webhook=Webhook("http://x.org:99999"))
    wiring = Wiring()
    deliveries = Deliveries(wiring.service)
    deliveries.start([])
    async with asyncio.timeout(20):
        answer = await wiring.service.execute(request)
    assert isinstance(answer, Refused)
    assert (answer.code, "99999" in answer.reason) == ("InvalidValue", True)
    assert list(wiring.broker.subscriptions) == []
    assert wiring.service.ingest.refused == 0, "that counts publications"
    assert isinstance(BrokerState().handle(request, 1), Subscribed), "a journal may hold it"
    await deliveries.stop()
