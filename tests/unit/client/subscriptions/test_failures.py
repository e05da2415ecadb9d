"""What a subscription says of a notification whose handler failed, and what it does with it: the same."""

from __future__ import annotations

import pytest

from lavant.client.connection.async_connection import AsyncConnection
from lavant.client.connection.retries import NO_RETRIES
from lavant.client.connection.settings import ConnectionSettings
from lavant.client.operations import Caller
from lavant.client.subscriptions.base import SubscriptionBase, SubscriptionParts
from lavant.client.subscriptions.notification import Notification
from lavant.client.values.queues import QueueConfig
from lavant.client.values.subscriptions import SubscriptionState

SETTINGS = ConnectionSettings.of("lavant://127.0.0.1:1", key="", ca_file=None, timeout_s=1, retries=NO_RETRIES)
STATE = SubscriptionState(1, "s", "", "a = 1", "s", True, None, created_s=0)


def failed(config: QueueConfig, attempt: int) -> int:
    """For how long a notification is hidden whose handler raised."""
    subscription = SubscriptionBase[None](
        SubscriptionParts(Caller(), AsyncConnection(SETTINGS), STATE, None, None, 1, None, print)
    )
    subscription._take_config(config)
    told: list[tuple[int | None, str]] = []

    def settle(retry_ms: int | None, reason: str) -> None:
        told.append((retry_ms, reason))

    notification = Notification({}, id="7", time_s=0, payload=None, attempt=attempt, settle=settle)
    try:
        raise RuntimeError("no luck")
    except RuntimeError as error:
        subscription._failed(notification, error)
    [(retry_ms, reason)] = told
    assert reason == "RuntimeError: no luck"
    assert retry_ms is not None
    return retry_ms


@pytest.mark.parametrize(
    ("config", "attempt", "said", "hidden_ms"),
    [
        (QueueConfig(), 3, "it comes again in 4 s", 4_000),
        (QueueConfig(dead_letters="dead", receives_max=3), 2, "it comes again in 2 s", 2_000),
        (
            QueueConfig(dead_letters="dead", receives_max=3),
            3,
            "the last attempt, it goes to the dead-letter queue dead",
            0,
        ),
        (
            QueueConfig(dead_letters="dead", receives_max=1),
            1,
            "the last attempt, it goes to the dead-letter queue dead",
            0,
        ),
        (
            QueueConfig(dead_letters="dead", receives_max=3),
            4,
            "the last attempt, it goes to the dead-letter queue dead",
            0,
        ),
    ],
)
def test_the_log_says_what_becomes_of_it(
    config: QueueConfig, attempt: int, said: str, hidden_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert failed(config, attempt) == hidden_ms
    assert f"(attempt {attempt})" in caplog.text
    assert said in caplog.text
    assert ("comes again" in caplog.text) is ("comes again" in said)
    assert "no luck" in caplog.text
