"""Answers that nobody reads, of one client and of all together."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.wiring import FakeClient, Wiring, in_loop, turn

from lavant.broker.protocol.queues import Receive, Received, Send, SendEntry
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


@in_loop
async def test_messages_for_a_client_that_is_behind_return_to_their_queue() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_bytes_max=1000))
    await wiring.create()
    behind, other = FakeClient(wiring.service).greet(), FakeClient(wiring.service).greet()
    behind.ask((1, Receive("q", wait_ms=20_000)))
    behind.transport.buffer_bytes = 501
    other.ask((1, Send("q", [SendEntry(b"x")])))
    await turn()
    wiring.store.commit()
    await turn()
    assert behind.answers()[1] == Received([])
    assert not behind.transport.is_aborted
    behind.transport.buffer_bytes = 500
    behind.ask((2, Receive("q", wait_ms=0)))
    await turn()
    received = behind.answers()[2]
    assert isinstance(received, Received)
    assert [(each.body, each.receive_count) for each in received.deliveries] == [(b"x", 1)]


@in_loop
async def test_who_lets_too_much_pile_up_is_disconnected_at_once() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_bytes_max=1000))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Receive("q", wait_ms=20_000)))
    client.protocol.pause_writing()
    client.transport.buffer_bytes = 1001
    FakeClient(wiring.service).greet().ask((1, Send("q", [SendEntry(b"x")])))
    await turn()
    wiring.store.commit()
    await turn()
    assert client.transport.is_aborted
