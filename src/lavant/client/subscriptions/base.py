"""What subscriptions of both kinds of clients have in common."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from lavant.broker.protocol.queue_config import SECOND_MS, VISIBILITY_MS_MAX, QueueConfig
from lavant.broker.protocol.subscriptions import SubscriptionState
from lavant.client.subscriptions.lease import Lease
from lavant.client.subscriptions.notification import Notification, notification_of, pause_s
from lavant.client.subscriptions.prefetcher import PREFETCH_MAX, HeldNotification, Prefetcher
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.client.encryption.cipher import Cipher

VISIBILITY_S_MIN = 1.0
"""A shorter lease could not be extended in time."""
STOP_S_MAX = 30.0
"""How long a subscription that is closed waits for handlers that are at work."""

_logger = logging.getLogger(__name__)


def check_receiving(prefetch: int, visibility_s: float | None, workers: int = 1) -> None:
    """Before the server is asked: what cannot be received must not be subscribed to."""
    if not 1 <= prefetch <= PREFETCH_MAX:
        raise InvalidValue(f"prefetch must be between 1 and {PREFETCH_MAX}, got {prefetch}")
    if visibility_s is not None and not VISIBILITY_S_MIN <= visibility_s <= VISIBILITY_MS_MAX / SECOND_MS:
        raise InvalidValue(
            f"visibility_s must be between {VISIBILITY_S_MIN:g} and {VISIBILITY_MS_MAX // SECOND_MS}, "
            f"got {visibility_s}"
        )
    if workers < 1:
        raise InvalidValue(f"workers must be at least 1, got {workers}")


class SubscriptionBase:
    """A subscription on a server, and how its notifications are to be received here."""

    def __init__(
        self,
        state: SubscriptionState,
        lease: Lease | None,
        *,
        cipher: Cipher | None,
        prefetch: int,
        visibility_s: float | None,
    ) -> None:
        self.state = state
        """As the server has it."""
        self._lease = lease
        self._queue_config: QueueConfig | None = None
        """As it was when this began to receive."""
        self._cipher = cipher
        self._prefetch = prefetch
        self._visibility_s = visibility_s
        self._is_closed = False
        self._is_removed = False
        self._current: Notification | None = None
        """The one that was given out last by iteration."""

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def queue(self) -> str:
        """Where its notifications wait."""
        return self.state.queue

    @property
    def is_temporary(self) -> bool:
        """It was made here without a name, or with a lease: it ends when it is closed."""
        return self._lease is not None

    @property
    def lapses(self) -> int:
        """How often a temporary one had ended at the server, and was made anew."""
        return 0 if self._lease is None else self._lease.lapses

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _check_receivable(self) -> None:
        if self._is_closed:
            raise InvalidValue(f"subscription {self.name!r} was closed here; subscribe again under its name to go on")
        if self.state.webhook is not None:
            raise InvalidValue(f"the notifications of {self.name!r} go to {self.state.webhook.url}, not to a program")

    def _take_config(self, config: QueueConfig) -> int:
        """Of the queue; for how long messages are to be leased."""
        self._queue_config = config
        if self._visibility_s is not None:
            return round(self._visibility_s * SECOND_MS)
        return max(config.visibility_ms, round(VISIBILITY_S_MIN * SECOND_MS))

    def _is_last(self, attempt: int) -> bool:
        """Whether a message that fails now goes to the dead letters, and does not come again."""
        receives_max = None if self._queue_config is None else self._queue_config.receives_max
        return receives_max is not None and attempt >= receives_max

    def _rest_s(self, attempt: int) -> float:
        """Of a message that failed. What does not come again need not rest: the next receive moves it."""
        return 0.0 if self._is_last(attempt) else pause_s(attempt)

    def _notification(self, intake: Prefetcher, held: HeldNotification) -> Notification | None:
        """None if it cannot be read: it comes again, later each time, and goes to the dead letters in the end."""
        try:
            return notification_of(held.delivery, self._cipher, partial(intake.settle, held))
        except InvalidValue as error:
            _logger.warning("subscription %s: %s", self.name, error)
            intake.settle(held, round(self._rest_s(held.delivery.receive_count) * SECOND_MS))
            return None

    def _settle_current(self, *, is_done: bool) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        if is_done:
            current.acknowledge()
        else:
            current.retry(self._rest_s(current.attempt))

    def _revive(self) -> Callable[[], Awaitable[None]] | None:
        """What brings the queue back, if it ends with the lease."""
        return self._lease.renew if self._lease is not None and self.state.owns_queue else None

    def _take_lease(self) -> list[Lease]:
        """To be ended, once."""
        if self._lease is None or self._is_removed:
            return []
        self._is_removed = True
        return [self._lease]

    def _failed(self, notification: Notification) -> None:
        """Its handler raised."""
        attempt, rest_s = notification.attempt, self._rest_s(notification.attempt)
        if self._is_last(attempt):
            assert self._queue_config is not None
            outcome = f"this was the last attempt, it goes to the dead-letter queue {self._queue_config.dead_letters}"
        else:
            outcome = f"it comes again in {rest_s:g} s"
        _logger.exception(
            "subscription %s: the handler failed at notification %s (attempt %d); %s",
            self.name,
            notification.id,
            attempt,
            outcome,
        )
        notification.retry(rest_s)
