"""Answers that nobody reads, of all clients together."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.wiring import FakeClient, Wiring, in_loop

from lavant.service.net.admission import SendBuffers
from lavant.service.runtime.limits import LIMITS


class Client:
    def __init__(self, unread: SendBuffers) -> None:
        self.unread = unread
        self.is_gone = False

    def abort(self) -> None:
        self.is_gone = True
        self.unread.forget(self)


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)))


@given(STEPS)
def test_all_together_never_hold_more_than_they_may_and_only_the_largest_goes(steps: list[tuple[int, int]]) -> None:
    unread = SendBuffers(100)
    clients = [Client(unread) for _ in range(6)]
    held: dict[int, int] = {}
    for place, size in steps:
        if clients[place].is_gone:
            continue
        held[place] = size
        unread.note(clients[place], size)
        if sum(held.values()) > 100:
            largest = max(held.values())
            [gone] = [each for each in held if clients[each].is_gone]
            assert held.pop(gone) == largest
        assert unread.bytes == sum(held.values()) <= 100
        assert not any(clients[each].is_gone for each in held)


@in_loop
async def test_the_client_with_the_most_unread_answers_is_disconnected_and_the_others_stay() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_bytes_total_max=100))
    slow, slower, reading = (FakeClient(wiring.service).greet() for _ in range(3))
    for client, size in ((slow, 40), (slower, 50)):
        client.transport.buffer_bytes = size
        client.protocol.pause_writing()
    assert wiring.service.send_buffers.bytes == 90
    slower.transport.buffer_bytes = 70
    slower.protocol.flush()
    assert slower.transport.is_aborted
    assert not slow.transport.is_aborted
    assert not reading.transport.is_aborted
    slow.protocol.resume_writing()
    assert wiring.service.send_buffers.bytes == 0
