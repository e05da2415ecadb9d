"""Replies that wait for the disk: each leaves when the record that it rests on is durable. Pure."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from operator import itemgetter

from lavant.broker.machine.effects import Reply

_NOTHING = (0, 0)


class PendingReplies:
    """`durable` is the position of the last record that the journal holds, `number` that of the last message there."""

    def __init__(self, durable: int, number: int) -> None:
        self.durable = durable
        self._replies: deque[tuple[int, Reply, bool]] = deque()
        """In the order of positions, and whether somebody is in a hurry."""
        self._hurried = 0
        """How many of them are."""
        self._leases: list[tuple[int, int, Reply]] = []
        """A heap of what waits for the commit of the messages it delivers, or of the lease of tasks."""
        self._leases_count = 0
        self._gone: dict[Hashable, tuple[int, int]] = {}
        """Clients that hung up: which leases they had been given by then, and the position by which those are due."""
        self._sends: deque[tuple[int, int]] = deque()
        """Of each send that is not durable yet, the number of its last message and its position; both count up."""
        self._number_durable = number

    def begin(self, number: int, position: int) -> None:
        """An epoch of leases begins with this record: until it is durable no message may leave, however old it is.

        A start after a crash would begin the same epoch once more.
        """
        self._number_durable = 0
        self.sent(number, position)

    def sent(self, number: int, position: int) -> None:
        """All messages up to a number are durable with this record."""
        self._sends.append((number, position))

    def hold(self, reply: Reply, position: int, *, is_patient: bool) -> None:
        """Until a record is durable. Positions never go back."""
        self._replies.append((position, reply, not is_patient))
        self._hurried += not is_patient

    def holds_receive(self, reply: Reply, newest: int, position: int) -> bool:
        """Whether a reply with messages up to a number has to wait; of one that no send made, for all until now."""
        if newest <= self._number_durable:
            return False
        place = bisect_left(self._sends, newest, key=itemgetter(0))
        after = self._sends[place][1] if place < len(self._sends) else position
        if after <= self.durable:
            return False
        self.hold_lease(reply, after)
        return True

    def hold_lease(self, reply: Reply, position: int) -> None:
        """One that leases something, until a record is durable."""
        self._leases_count += 1
        heapq.heappush(self._leases, (position, self._leases_count, reply))

    def gone(self, client: Hashable, position: int) -> None:
        """A client hung up, when that was the last record: it has no use for the leases that it was given."""
        if self._leases:
            self._gone[client] = (self._leases_count, position)

    def committed(self, position: int) -> tuple[list[Reply], list[Reply]]:
        """All records up to `position` are durable: the replies that may leave, and the leases of clients that are
        gone."""
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
        """Those that are due and can be handed over go to the others that are ready; the rest is returned."""
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
        """Whether somebody waits for the disk."""
        return self._hurried > 0 or bool(self._leases)
