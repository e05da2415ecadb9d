"""The courier of one webhook: receives its notifications, posts them, and says how it went."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import random
import ssl
import time
from importlib.metadata import version

from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import VISIBILITY_MS_MAX, WAIT_MS_MAX
from lavant.broker.protocol.queues import (
    Acknowledge,
    ChangeVisibility,
    Delivery,
    Described,
    DescribeQueue,
    Receive,
    Received,
    Refused,
    Release,
    VisibilityChange,
)
from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.core.errors import UnknownQueue
from lavant.service.delivery.consumer import is_json
from lavant.service.delivery.webhooks.addresses import WebhookFault
from lavant.service.delivery.webhooks.http_client import Idle, Posted, WebhookClient
from lavant.service.observability.counters import WEBHOOK, Meters
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.limits import ServiceLimits

SECRET_PREFIX = "whsec_"
"""Before a secret that is written in base64; others are taken as they are."""


def signature(secret: str, id: str, time_s: int, body: bytes) -> str:
    """
    >>> secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    >>> signature(secret, id, 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{id}.{time_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), content, "sha256")).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()


USER_AGENT = f"lavant/{version('lavant')}"
SLACK_S = 10.0
"""How much longer than its request a message is hidden: it may have to wait for its turn."""
PAUSE_S = 1.0
"""After a receive that was refused."""

_logger = logging.getLogger(__name__)


class WebhookSender:
    """Of one subscription. `turns` bounds the requests of all couriers together, `idle` the connections they keep."""

    def __init__(
        self,
        subscription: SubscriptionState,
        service: BrokerRuntime,
        meters: Meters,
        turns: asyncio.Semaphore,
        idle: Idle,
        *,
        to_private: bool,
        context: ssl.SSLContext,
    ) -> None:
        assert subscription.webhook is not None
        self._webhook = subscription.webhook
        self._subscription = subscription
        self._queue = subscription.queue
        self._service = service
        self._limits: ServiceLimits = service.limits
        self._meters = meters
        self._turns = turns
        self._poster = WebhookClient(
            self._webhook.url,
            idle,
            to_private=to_private,
            context=context,
            answer_bytes_max=service.limits.webhook_answer_bytes_max,
        )
        self._under_way: set[asyncio.Task[None]] = set()
        self._timeout_s = self._webhook.timeout_ms / 1000
        self._visibility_s = 2 * self._timeout_s + SLACK_S

    async def run(self) -> None:
        """Until it is cancelled, or the queue is gone; requests under way have some time to end then."""
        try:
            while await self._receive_some():
                pass
        finally:
            if self._under_way:
                await asyncio.wait(self._under_way, timeout=self._limits.stop_s_max)
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            self._poster.tidy()

    async def _receive_some(self) -> bool:
        """False if there is nothing to be had any more."""
        while (room := self._limits.webhook_requests_max - len(self._under_way)) <= 0:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        request = Receive(self._queue, room, round(self._visibility_s * 1000), WAIT_MS_MAX)
        answer = await self._service.execute(request)
        if isinstance(answer, Refused):
            await asyncio.sleep(PAUSE_S)
            return answer.code != UnknownQueue.__name__
        assert isinstance(answer, Received)
        if not answer.deliveries:
            self._poster.tidy()
        received_s = time.monotonic()
        for delivery in answer.deliveries:
            task = asyncio.create_task(self._deliver(delivery, received_s))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return True

    async def _deliver(self, delivery: Delivery, received_s: float) -> None:
        """Nobody waits for the answers here: an acknowledgement that is lost in a crash means one more attempt."""
        settled: Request = Release(self._queue, [delivery.receipt])
        try:
            async with self._turns:
                if time.monotonic() - received_s < self._timeout_s + SLACK_S:  # or else somebody may have it by now
                    settled = _hidden(self._queue, delivery, 0.0)
                    settled = await self._attempt(delivery)
        finally:
            self._service.ask(settled)

    async def _attempt(self, delivery: Delivery) -> Request:
        """Post it, and say what is to become of it."""
        try:
            with self._meters.webhook_seconds.timed():
                posted = await self._poster.post(self._headers(delivery), delivery.body, self._timeout_s)
        except WebhookFault as fault:
            posted, said = Posted(0), str(fault)
        else:
            said = f"status {posted.status}"
        if posted.is_success:
            self._meters.webhook_results["success"] += 1
            self._meters.notifications[WEBHOOK] += 1
            return Acknowledge(self._queue, [delivery.receipt])
        self._meters.webhook_results["failure"] += 1
        _logger.info(
            "webhook of %s, message %d, attempt %d: %s",
            self._subscription.name,
            delivery.receipt.number,
            delivery.receive_count,
            said,
        )
        return _hidden(self._queue, delivery, await self._pause_s(delivery.receive_count, posted))

    async def _pause_s(self, attempt: int, posted: Posted) -> float:
        """Until the next attempt. After the last one there is none: the queue moves it when it is received again."""
        if attempt == self._webhook.attempts_max:
            described = await self._service.execute(DescribeQueue(self._queue))
            if isinstance(described, Described) and described.config.receives_max == attempt:
                return 0.0
        return pause_s(attempt, posted.retry_after_s, self._limits, random.random())

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        id, time_s = str(delivery.receipt.number), int(time.time())
        headers = {
            "Content-Type": "application/json" if is_json(delivery.body) else "application/octet-stream",
            "User-Agent": USER_AGENT,
            "Lavant-Subscription": self._subscription.name,
            "Lavant-Attempt": str(delivery.receive_count),
            "Webhook-Id": id,
            "Webhook-Timestamp": str(time_s),
        }
        if self._webhook.secret:
            headers["Webhook-Signature"] = signature(self._webhook.secret, id, time_s, delivery.body)
        return headers


def pause_s(attempt: int, retry_after_s: float | None, limits: ServiceLimits, chance: float) -> float:
    """Twice as long after each attempt, between half and the whole of it by `chance`; longer if the webhook says so.

    >>> limits = ServiceLimits(webhook_backoff_s=1.0, webhook_backoff_s_max=600.0, webhook_retry_after_s_max=3600.0)
    >>> [pause_s(attempt, None, limits, 1.0) for attempt in (1, 2, 3, 50)], pause_s(3, None, limits, 0.0)
    ([1.0, 2.0, 4.0, 600.0], 2.0)
    >>> [pause_s(1, asked_s, limits, 1.0) for asked_s in (0.0, 30.0, 1e9)]
    [1.0, 30.0, 3600.0]
    """
    doubled_s = limits.webhook_backoff_s * 2.0 ** min(attempt - 1, 60)
    own_s = min(doubled_s, limits.webhook_backoff_s_max) * (0.5 + chance / 2)
    asked_s = 0.0 if retry_after_s is None else min(retry_after_s, limits.webhook_retry_after_s_max)
    return max(own_s, asked_s)


def _hidden(queue: str, delivery: Delivery, seconds: float) -> ChangeVisibility:
    visibility_ms = min(round(seconds * 1000), VISIBILITY_MS_MAX)
    return ChangeVisibility(queue, [VisibilityChange(delivery.receipt, visibility_ms)])
