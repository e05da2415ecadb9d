"""What subscriptions of both kinds of clients have in common."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from lavant.broker.queues.commands import Described
from lavant.broker.queues.config import SECOND_MS, VISIBILITY_MS_MAX
from lavant.broker.subscriptions.commands import SubscriptionState
from lavant.client.subscriptions.calls import TEMPORARY_PREFIX
from lavant.client.subscriptions.intake import PREFETCH_MAX, Held, Intake
from lavant.client.subscriptions.notification import Notification, notification_of, pause_s
from lavant.core.errors import ConnectionLost, InvalidValue, MissingComponent

if TYPE_CHECKING:
    from lavant.client.encryption.sealing import Cipher

VISIBILITY_S_MIN = 1.0
"""A shorter lease could not be extended in time."""
STOP_S_MAX = 30.0
"""How long a subscription that is closed waits for handlers that are at work."""

_logger = logging.getLogger(__name__)


class SubscriptionBase:
    """A subscription on a server, and how its notifications are to be received here."""

    def __init__(
        self, state: SubscriptionState, *, cipher: Cipher | None, prefetch: int, visibility_s: float | None
    ) -> None:
        if not 1 <= prefetch <= PREFETCH_MAX:
            raise InvalidValue(f"prefetch must be between 1 and {PREFETCH_MAX}, got {prefetch}")
        if visibility_s is not None and not VISIBILITY_S_MIN <= visibility_s <= VISIBILITY_MS_MAX / SECOND_MS:
            raise InvalidValue(
                f"visibility_s must be between {VISIBILITY_S_MIN:g} and {VISIBILITY_MS_MAX // SECOND_MS}, "
                f"got {visibility_s}"
            )
        self.state = state
        """As the server has it."""
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
        """Nobody named it: it ends when it is closed."""
        return self.name.startswith(TEMPORARY_PREFIX)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _check_receivable(self) -> None:
        if self._is_closed:
            raise InvalidValue(f"subscription {self.name!r} was closed here; subscribe again under its name to go on")
        if self.state.webhook is not None:
            raise InvalidValue(f"the notifications of {self.name!r} go to {self.state.webhook.url}, not to a program")

    def _lease_ms(self, queue: Described) -> int:
        if self._visibility_s is not None:
            return round(self._visibility_s * SECOND_MS)
        return max(queue.config.visibility_ms, round(VISIBILITY_S_MIN * SECOND_MS))

    def _notification(self, intake: Intake, held: Held) -> Notification | None:
        """None if it cannot be read: it comes again, later each time, and goes to the dead letters in the end."""
        try:
            return notification_of(held.delivery, self._cipher, partial(intake.settle, held))
        except InvalidValue as error:
            _logger.warning("subscription %s: %s", self.name, error)
            intake.settle(held, round(pause_s(held.delivery.receive_count) * SECOND_MS))
            return None

    def _settle_current(self, *, is_done: bool) -> None:
        current, self._current = self._current, None
        if current is None:
            return
        if is_done:
            current.acknowledge()
        else:
            current.retry(pause_s(current.attempt))

    @contextlib.contextmanager
    def _telling_if_it_stays(self) -> Iterator[None]:
        """Closing is no place to raise that the server is gone: whoever closes has done with it."""
        try:
            yield
        except (ConnectionLost, MissingComponent) as error:
            _logger.warning("subscription %s could not be removed, and stays at the server: %s", self.name, error)

    def _failed(self, notification: Notification) -> None:
        """Its handler raised."""
        rest_s = pause_s(notification.attempt)
        _logger.exception(
            "subscription %s: the handler failed at notification %s (attempt %d); it comes again in %g s",
            self.name,
            notification.id,
            notification.attempt,
            rest_s,
        )
        notification.retry(rest_s)
