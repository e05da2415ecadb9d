"""What a client with a temporary subscription does: subscribes, renews, and subscribes anew if its lease was over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queues import Refused
from lavant.broker.protocol.subscriptions import RenewSubscription, Subscribe, Subscribed
from lavant.core.errors import UnknownSubscription

RENEWALS_PER_LEASE = 3


class Subscriber:
    """One start of one client; fulfils `Work`.

    `now_us` is the world's time, and `on_ended` is told how long ago, by that, the last request was sent that renewed a
    lease which the server says has ended.
    """

    def __init__(
        self, name: str, lease_ms: int, *, now_us: Callable[[], int], on_ended: Callable[[str, int], None]
    ) -> None:
        self.name = name
        self._request = Subscribe("price > 1", name, lease_ms=lease_ms)
        self._period_ms = lease_ms // RENEWALS_PER_LEASE
        self._now_us = now_us
        self._on_ended = on_ended
        self._is_subscribed = False
        self._asked_us = 0
        self._renewed_us = 0
        self._next_ms = 0

    def wishes(self, under_way: int, now_ms: int) -> Iterator[Request]:
        if under_way or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._period_ms
        self._asked_us = self._now_us()
        yield RenewSubscription(self.name) if self._is_subscribed else self._request

    def answered(self, request: Request, answer: Answer | None, now_ms: int) -> None:
        if isinstance(answer, Subscribed):
            self._is_subscribed = True
            self._renewed_us = self._asked_us
        elif isinstance(answer, Refused) and answer.code == UnknownSubscription.__name__:
            self._is_subscribed = False
            self._next_ms = now_ms
            self._on_ended(self.name, self._now_us() - self._renewed_us)
        else:  # nobody knows, or the disk is full
            self._next_ms = min(self._next_ms, now_ms + self._period_ms // 2)

    def asked(self, value: object, now_ms: int) -> None:
        """Nobody asks it for anything."""

    def connected(self) -> None:
        self._next_ms = 0

    def wakeup_ms(self) -> int | None:
        return self._next_ms
