"""Replies that wait for the disk: each leaves when the record that it rests on is durable. Pure."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from operator import itemgetter

from lavant.broker.serving.effects import Reply


class PendingReplies:
    """`durable` is the position of the last record that the journal holds, `number` that of the last message there."""

    def __init__(self, durable: int, number: int) -> None:
        self.durable = durable
        self._replies: deque[tuple[int, Reply, bool]] = deque()
        """In the order of positions, and whether somebody is in a hurry."""
        self._hurried = 0
        """How many of them are."""
        self._receives: list[tuple[int, int, Reply]] = []
        """A heap of what waits for the commit of the messages it delivers."""
        self._receives_count = 0
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
        self._receives_count += 1
        heapq.heappush(self._receives, (after, self._receives_count, reply))
        return True

    def committed(self, position: int) -> list[Reply]:
        """All records up to `position` are durable: the replies that may leave."""
        self.durable = position
        ready: list[Reply] = []
        replies, receives, sends = self._replies, self._receives, self._sends
        while replies and replies[0][0] <= position:
            _, reply, is_hurried = replies.popleft()
            ready.append(reply)
            self._hurried -= is_hurried
        while receives and receives[0][0] <= position:
            ready.append(heapq.heappop(receives)[2])
        while sends and sends[0][1] <= position:
            self._number_durable = sends.popleft()[0]
        return ready

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the disk."""
        return self._hurried > 0 or bool(self._receives)
