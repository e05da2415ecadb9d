"""Leases of temporary subscriptions: a subscription ends when its client is silent for the length of its lease. Pure.

    Subscribe, RenewSubscription, use of the subscription's own queue ──► another whole lease
    no such request for `lease_ms`, and no long poll there ─────────────► `due`: the server unsubscribes it

The journal records that a subscription is temporary, the length of its lease, and its end as an ordinary `Unsubscribe`.
It does not record renewals: they cost no write, and a replay needs no clock.

A lease counts only time in which the server runs and can receive renewals. A server that starts gives every temporary
subscription a whole lease. Of a time step longer than `STEP_MS_MAX` (the machine was suspended, the process stopped, or
a held clock was accepted) only that much counts. So no subscription ends because the server was away.
"""

from __future__ import annotations

import heapq
import re

from msgspec.structs import replace

from lavant.broker.machine.effects import Reply
from lavant.broker.protocol.commands import Answer
from lavant.broker.protocol.jobs import ReleaseTasks, TaskAttempt, TasksLeased
from lavant.broker.protocol.queues import Received, Release
from lavant.broker.protocol.subscriptions import Subscribed, SubscriptionsListed, SubscriptionState
from lavant.broker.queues.machine import Queues
from lavant.broker.subscriptions.limits import LEASE_MS


def release_of(reply: Reply) -> Release | ReleaseTasks | None:
    """The command that undoes the leases of a reply; None if it leased nothing."""
    answer = reply.answer
    if isinstance(answer, TasksLeased) and answer.tasks:
        return ReleaseTasks([TaskAttempt(each.job, each.task, each.attempt) for each in answer.tasks])
    if isinstance(answer, Received) and answer.deliveries:
        return Release(reply.queue, [delivery.receipt for delivery in answer.deliveries])
    return None


CHECK_INTERVAL_MS = 5_000
"""While there are leases, the server checks the time this often: a longer step means that it did not run."""
STEP_MS_MAX = 2 * CHECK_INTERVAL_MS
DUE_MAX = 200
"""Subscriptions that end in one step; the rest follow a moment later, so that requests are not delayed."""
STALE_MIN = 64
"""Stale heap entries that are not worth a cleanup."""
_STREAM_LABEL = "lavant-ephemeral"
_CLIENTS_NAME = re.compile("tmp-[0-9a-f]{16}")
_CLIENTS_RETENTION_MS = 3_600_000


def lease_ms_of(state: SubscriptionState, queues: Queues) -> int:
    """The length of a subscription's lease; 0 if it is not temporary.

    Versions without leases left temporary subscriptions behind: the queues of streams have a label, and those of
    clients a generated name and a retention of their own.
    """
    if state.lease_ms or not state.owns_queue:
        return state.lease_ms
    config = queues.config(state.queue)
    is_clients = _CLIENTS_NAME.fullmatch(state.name) is not None and config.retention_ms == _CLIENTS_RETENTION_MS
    return LEASE_MS if is_clients or _STREAM_LABEL in config.labels else 0


class _Lease:
    __slots__ = ("deadline_ms", "is_over", "lease_ms", "state")

    def __init__(self, state: SubscriptionState, lease_ms: int) -> None:
        self.state = state
        self.lease_ms = lease_ms
        self.deadline_ms = 0
        """In counted time."""
        self.is_over = False


class SubscriptionLeases:
    """The leases of a server.

    >>> leases = SubscriptionLeases(now_ms=1_000_000)
    >>> state = SubscriptionState(1, "tmp-1", "", "price > 1", "tmp-1", True, None, 0, lease_ms=6_000)
    >>> leases.hold(state, now_ms=1_000_000)
    >>> leases.due(1_004_000), leases.ends_ms(1, 1_004_000), leases.wakeup_ms()
    ([], 1006000, 1006000)
    >>> [each.name for each in leases.due(1_006_000)]
    ['tmp-1']
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._by_number: dict[int, _Lease] = {}
        self._by_queue: dict[str, _Lease] = {}
        """Of subscriptions that own their queue."""
        self._heap: list[tuple[int, int, _Lease]] = []
        """An entry per lease, no later than its deadline, and stale entries of leases that are over."""
        self._seen_ms = now_ms
        self._counted_ms = 0
        """The counted time until then."""

    def __len__(self) -> int:
        return len(self._by_number)

    def hold(self, state: SubscriptionState, now_ms: int, lease_ms: int | None = None) -> None:
        """Start or renew the lease of a subscription."""
        lease = self._by_number.get(state.number)
        if lease is not None:
            self._renew(lease, now_ms)
            return
        lease = self._by_number[state.number] = _Lease(state, state.lease_ms if lease_ms is None else lease_ms)
        if state.owns_queue:
            former = self._by_queue.get(state.queue)
            if former is not None:  # the filter was changed
                self.forget(former.state.number)
            self._by_queue[state.queue] = lease
        self._renew(lease, now_ms)
        heapq.heappush(self._heap, (lease.deadline_ms, state.number, lease))

    def used(self, queue: str, now_ms: int) -> None:
        """A client consumes from a queue: renew the lease of the subscription that owns it."""
        lease = self._by_queue.get(queue)
        if lease is not None:
            self._renew(lease, now_ms)

    def forget(self, number: int) -> None:
        """End the lease of a subscription."""
        lease = self._by_number.pop(number, None)
        if lease is None:
            return
        lease.is_over = True
        if self._by_queue.get(lease.state.queue) is lease:
            del self._by_queue[lease.state.queue]
        if len(self._heap) > 2 * len(self._by_number) + STALE_MIN:
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapq.heapify(self._heap)

    def due(self, now_ms: int) -> list[SubscriptionState]:
        """Remove and return the subscriptions whose lease is over, by deadline, at most `DUE_MAX`."""
        self._count(now_ms)
        due: list[SubscriptionState] = []
        while self._heap and self._heap[0][0] <= self._counted_ms and len(due) < DUE_MAX:
            _, number, lease = heapq.heappop(self._heap)
            if lease.is_over:
                continue
            if lease.deadline_ms > self._counted_ms:
                heapq.heappush(self._heap, (lease.deadline_ms, number, lease))
            else:
                due.append(lease.state)
                self.forget(number)
        return due

    def with_ends(self, answer: Answer, now_ms: int) -> Answer:
        """Adds to an answer when its subscriptions end."""
        if isinstance(answer, Subscribed):
            return replace(answer, subscription=self._with_end(answer.subscription, now_ms))
        if isinstance(answer, SubscriptionsListed):
            return SubscriptionsListed([self._with_end(each, now_ms) for each in answer.subscriptions])
        return answer

    def ends_ms(self, number: int, now_ms: int) -> int:
        """When a subscription ends unless its lease is renewed; 0 if it has none."""
        lease = self._by_number.get(number)
        if lease is None:
            return 0
        self._count(now_ms)
        return self._seen_ms + lease.deadline_ms - self._counted_ms

    def wakeup_ms(self) -> int | None:
        """When to call `due`: always later than the last time seen."""
        if not self._by_number:
            return None
        left_ms = max(1, self._heap[0][0] - self._counted_ms)
        return self._seen_ms + min(left_ms, CHECK_INTERVAL_MS)

    def _with_end(self, state: SubscriptionState, now_ms: int) -> SubscriptionState:
        ends_ms = self.ends_ms(state.number, now_ms)
        return replace(state, expires_ms=ends_ms) if ends_ms else state

    def _renew(self, lease: _Lease, now_ms: int) -> None:
        self._count(now_ms)
        lease.deadline_ms = self._counted_ms + lease.lease_ms

    def _count(self, now_ms: int) -> None:
        step_ms = now_ms - self._seen_ms
        if step_ms > 0:
            self._seen_ms = now_ms
            self._counted_ms += min(step_ms, STEP_MS_MAX)
