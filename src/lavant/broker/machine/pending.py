"""Replies that wait for the disk: each leaves when the record that it depends on is durable. Pure."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from operator import itemgetter

from lavant.broker.machine.effects import Reply

_NOTHING = (0, 0)


class PendingReplies:
    """`durable` is the position of the last durable record, `number` that of the last durable message."""

    def __init__(self, durable: int, number: int) -> None:
        self.durable = durable
        self._replies: deque[tuple[int, Reply, bool]] = deque()
        """By position, and whether the client waits for it."""
        self._hurried = 0
        """Replies that a client waits for."""
        self._leases: list[tuple[int, int, Reply]] = []
        """A heap of replies with messages or tasks, by the record that they wait for."""
        self._leases_count = 0
        self._gone: dict[Hashable, tuple[int, int]] = {}
        """By disconnected client: the count of leases until then, and the last position that they can wait for."""
        self._sends: deque[tuple[int, int]] = deque()
        """Of each send that is not durable yet, the number of its last message and its position; both increase."""
        self._number_durable = number

    def begin(self, number: int, position: int) -> None:
        """Hold all messages until this record, which begins an epoch of leases, is durable.

        Otherwise the next start after a crash would begin the same epoch again.
        """
        self._number_durable = 0
        self.sent(number, position)

    def sent(self, number: int, position: int) -> None:
        """Messages up to this number are durable with this record."""
        self._sends.append((number, position))

    def hold(self, reply: Reply, position: int, *, is_patient: bool) -> None:
        """Hold a reply until a record is durable. Positions never go back."""
        self._replies.append((position, reply, not is_patient))
        self._hurried += not is_patient

    def holds_receive(self, reply: Reply, newest: int, position: int) -> bool:
        """Hold a reply with messages up to `newest` if their send is not durable; returns whether it is held."""
        if newest <= self._number_durable:
            return False
        index = bisect_left(self._sends, newest, key=itemgetter(0))
        after = self._sends[index][1] if index < len(self._sends) else position  # moved messages have no send
        if after <= self.durable:
            return False
        self.hold_lease(reply, after)
        return True

    def hold_lease(self, reply: Reply, position: int) -> None:
        """Hold a reply that leases something until a record is durable."""
        self._leases_count += 1
        heapq.heappush(self._leases, (position, self._leases_count, reply))

    def gone(self, client: Hashable, position: int) -> None:
        """A client disconnected, when this was the last position: its held leases will be released."""
        if self._leases:
            self._gone[client] = (self._leases_count, position)

    def committed(self, position: int) -> tuple[list[Reply], list[Reply]]:
        """Records up to `position` are durable: returns the replies that may leave, and the leases of disconnected
        clients."""
        self.durable = position
        ready: list[Reply] = []
        replies, sends = self._replies, self._sends
        while replies and replies[0][0] <= position:
            _, reply, is_hurried = replies.popleft()
            ready.append(reply)
            self._hurried -= is_hurried
        undeliverable = self._take_leases(position, ready)
        while sends and sends[0][1] <= position:
            self._number_durable = sends.popleft()[0]
        return ready, undeliverable

    def _take_leases(self, position: int, ready: list[Reply]) -> list[Reply]:
        """Append leases that are due to `ready`; returns those of disconnected clients."""
        leases = self._leases
        undeliverable: list[Reply] = []
        while leases and leases[0][0] <= position:
            _, count, reply = heapq.heappop(leases)
            is_gone = bool(self._gone) and count <= self._gone.get(reply.client, _NOTHING)[0]
            (undeliverable if is_gone else ready).append(reply)
        if self._gone:
            self._gone = {client: until for client, until in self._gone.items() if until[1] > position}
        return undeliverable

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for a commit."""
        return self._hurried > 0 or bool(self._leases)
