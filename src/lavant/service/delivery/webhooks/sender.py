"""Posts the messages of subscriptions to their webhooks, and settles them by the answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import random
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from urllib.parse import urlsplit

from lavant import tracing
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queue_config import REASON_CHARACTERS_MAX, VISIBILITY_MS_MAX, WAIT_MS_MAX
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
from lavant.broker.protocol.subscriptions import Subscribe, SubscriptionState, Webhook
from lavant.core.errors import UnknownQueue
from lavant.core.publications.trace_context import TraceContext, of_message, of_publication
from lavant.service.delivery.interface import DeliveryKind
from lavant.service.delivery.queue import is_json
from lavant.service.delivery.webhooks.addresses import WebhookFault, check_address
from lavant.service.delivery.webhooks.http_client import Idle, Posted, WebhookClient
from lavant.service.observability.counters import counter_family, histogram_family
from lavant.service.observability.logs import RepeatedFault
from lavant.service.observability.openmetrics import Histogram, MetricFamily
from lavant.service.runtime.broker_runtime import BrokerRuntime
from lavant.service.runtime.limits import ServiceLimits

SECRET_PREFIX = "whsec_"
"""Marks a secret in base64; others are used as they are."""


def signature(secret: str, id: str, time_s: int, body: bytes) -> str:
    """The signature of a request, as in Standard Webhooks.

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


WEBHOOK = "webhook"
USER_AGENT = f"lavant/{version('lavant')}"
SLACK_S = 10.0
"""How much longer than a request its message is leased: the request may have to wait for others."""
PAUSE_S = 1.0
"""The pause after a receive that was refused."""

_logger = logging.getLogger(__name__)


class WebhookDelivery(DeliveryKind):
    """Posts the messages of subscriptions that have a webhook."""

    name = WEBHOOK
    ways = (WEBHOOK,)

    def __init__(self, service: BrokerRuntime, *, to_private: bool) -> None:
        super().__init__(service, to_private=to_private)
        self.results = Counter({"success": 0, "failure": 0})
        self.seconds = Histogram()
        self.turns = asyncio.Semaphore(service.limits.webhook_requests_total_max)
        """Bounds the requests to all webhooks together."""
        self._context = ssl.create_default_context()
        self._idle = Idle(service.limits.webhook_idle_max)

    def check(self, request: Subscribe) -> None:
        if request.webhook is not None:
            check_address(request.webhook.url)

    def serves(self, subscription: SubscriptionState) -> bool:
        return subscription.webhook is not None

    async def deliver(self, subscription: SubscriptionState) -> None:
        assert subscription.webhook is not None
        client = WebhookClient(
            subscription.webhook.url,
            self._idle,
            to_private=self._to_private,
            context=self._context,
            answer_bytes_max=self._service.limits.webhook_answer_bytes_max,
        )
        await WebhookSender(subscription, subscription.webhook, self._service, self, client).run()

    def families(self) -> Iterator[MetricFamily]:
        yield counter_family("lavant_webhook_attempts", "Requests to webhooks.", "result", self.results)
        yield histogram_family("lavant_webhook_seconds", "How long webhooks took to answer.", self.seconds)


class WebhookSender:
    """Posts the messages of one subscription."""

    def __init__(
        self,
        subscription: SubscriptionState,
        webhook: Webhook,
        service: BrokerRuntime,
        kind: WebhookDelivery,
        client: WebhookClient,
    ) -> None:
        self._webhook = webhook
        self._subscription = subscription
        self._queue = subscription.queue
        self._service = service
        self._limits: ServiceLimits = service.limits
        self._kind = kind
        self._client = client
        self._requests: set[asyncio.Task[None]] = set()
        self._fault = RepeatedFault()
        self._is_failing = False
        self._timeout_s = self._webhook.timeout_ms / 1000
        self._visibility_s = 2 * self._timeout_s + SLACK_S

    async def run(self) -> None:
        """Runs until it is cancelled or the queue is gone; requests in flight then have `stop_s_max` to end."""
        try:
            while await self._receive_some():
                pass
        finally:
            if self._requests:
                await asyncio.wait(self._requests, timeout=self._limits.stop_s_max)
            for task in self._requests:
                task.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)
            self._client.close_idle()

    async def _receive_some(self) -> bool:
        """Receives messages and starts to post them; False if the queue is gone."""
        while (room := self._limits.webhook_requests_max - len(self._requests)) <= 0:
            await asyncio.wait(self._requests, return_when=asyncio.FIRST_COMPLETED)
        request = Receive(self._queue, room, round(self._visibility_s * 1000), WAIT_MS_MAX)
        answer = await self._service.execute(request)
        if isinstance(answer, Refused):
            await asyncio.sleep(PAUSE_S)
            return answer.code != UnknownQueue.__name__
        assert isinstance(answer, Received)
        if not answer.deliveries:
            self._client.close_idle()
        received_s = time.monotonic()
        for delivery in answer.deliveries:
            task = asyncio.create_task(self._deliver(delivery, received_s))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        return True

    async def _deliver(self, delivery: Delivery, received_s: float) -> None:
        """Posts a message and settles it. If a crash loses the acknowledgement, the message is posted again."""
        settled: Request = Release(self._queue, [delivery.receipt])
        try:
            async with self._kind.turns:
                if time.monotonic() - received_s < self._timeout_s + SLACK_S:  # otherwise its lease may have expired
                    settled = _hidden(self._queue, delivery, 0.0, "the server was stopped")
                    settled = await self._attempt(delivery)
        finally:
            self._service.ask(settled)

    async def _attempt(self, delivery: Delivery) -> Request:
        """Posts a message, and returns the request that settles it."""
        context = of_message(delivery.attributes) if delivery.attributes else of_publication(delivery.body)
        with tracing.calling("POST", context) as span:
            if span is not None:
                span.set_attributes(self._span_attributes(delivery))
                context = tracing.current()
            headers = self._headers(delivery, context)
            try:
                with self._kind.seconds.timed():
                    posted = await self._client.post(headers, delivery.body, self._timeout_s)
            except WebhookFault as fault:
                posted, said = Posted(0), str(fault)
            else:
                said = f"status {posted.status}"
            tracing.fail(span, "" if posted.is_success else said)
        if posted.is_success:
            self._kind.results["success"] += 1
            self._kind.delivered[WEBHOOK] += 1
            self._tell_of_success()
            return Acknowledge(self._queue, [delivery.receipt])
        self._kind.results["failure"] += 1
        self._tell(delivery, said)
        return _hidden(self._queue, delivery, await self._pause_s(delivery.receive_count, posted), said)

    def _tell(self, delivery: Delivery, said: str) -> None:
        failures = self._fault.add()
        self._is_failing = True
        if failures is not None:
            _logger.warning(
                "webhook of subscription %s failed: %s (message %d, attempt %d); %d since the last line",
                self._subscription.name,
                said,
                delivery.receipt.number,
                delivery.receive_count,
                failures,
            )

    def _tell_of_success(self) -> None:
        if self._is_failing:
            self._is_failing = False
            self._fault.over()
            _logger.info("webhook of subscription %s works again", self._subscription.name)

    async def _pause_s(self, attempt: int, posted: Posted) -> float:
        """The pause before the next attempt; none after the last one: the next receive dead-letters the message."""
        if attempt == self._webhook.attempts_max:
            described = await self._service.execute(DescribeQueue(self._queue))
            if isinstance(described, Described) and described.config.receives_max == attempt:
                return 0.0
        return pause_s(attempt, posted.retry_after_s, self._limits, random.random())

    def _span_attributes(self, delivery: Delivery) -> dict[str, str | int]:
        return {
            "http.request.method": "POST",
            "http.request.resend_count": delivery.receive_count - 1,
            "lavant.subscription": self._subscription.name,
            "messaging.message.id": str(delivery.receipt.number),
            "server.address": str(urlsplit(self._webhook.url).hostname),
        }

    def _headers(self, delivery: Delivery, context: TraceContext) -> dict[str, str]:
        id, time_s = str(delivery.receipt.number), int(time.time())
        headers = {
            "Content-Type": "application/json" if is_json(delivery.body) else "application/octet-stream",
            "User-Agent": USER_AGENT,
            "Lavant-Subscription": self._subscription.name,
            "Lavant-Attempt": str(delivery.receive_count),
            "Webhook-Id": id,
            "Webhook-Timestamp": str(time_s),
            **context.headers(),
        }
        if self._webhook.secret:
            headers["Webhook-Signature"] = signature(self._webhook.secret, id, time_s, delivery.body)
        return headers


def pause_s(attempt: int, retry_after_s: float | None, limits: ServiceLimits, chance: float) -> float:
    """The pause doubles with each attempt, `chance` shortens it by up to a half; Retry-After may make it longer.

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


def _hidden(queue: str, delivery: Delivery, seconds: float, reason: str) -> ChangeVisibility:
    visibility_ms = min(round(seconds * 1000), VISIBILITY_MS_MAX)
    change = VisibilityChange(delivery.receipt, visibility_ms, f"webhook: {reason}"[:REASON_CHARACTERS_MAX])
    return ChangeVisibility(queue, [change])
