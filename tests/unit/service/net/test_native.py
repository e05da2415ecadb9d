"""A connection of the native protocol: greeting, pipelining, bounds in both directions, and clients that misbehave."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import msgspec
from tests.unit.service.key_rings import key_ring
from tests.unit.service.wiring import FakeClient, Wiring, WorkClock, in_loop, turn, until

from lavant.broker.protocol.frames import FAULT_NUMBER, Hello
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    CreateQueue,
    Done,
    Listed,
    ListQueues,
    Peek,
    QueueCreated,
    Receive,
    Received,
    Refused,
    Send,
    SendEntry,
    Sent,
    SentEntry,
)
from lavant.core.errors import StorageFailed
from lavant.core.frames import frame
from lavant.service.auth.keys import KeyEntry, sha256_of
from lavant.service.runtime.limits import LIMITS
from lavant.service.runtime.readiness import Readiness
from lavant.service.runtime.turns import Turns


def refused(answer: object) -> str:
    assert isinstance(answer, Refused), answer
    return answer.code


# ── greeting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_loop
async def test_a_server_that_is_not_ready_says_how_far_it_is_and_hangs_up() -> None:
    readiness = Readiness(lambda: None)
    readiness.starts_with("compiling kernels 12/31")
    wiring = Wiring()
    early, position = FakeClient(wiring.service, readiness=readiness), wiring.store.position
    early.protocol.data_received(bytes(frame(0, Hello()) + frame(1, CreateQueue("q", QueueConfig()))))
    await turn()
    said = "the server is starting: compiling kernels 12/31; try again in a moment"
    assert early.answers() == {0: Refused("NotReady", said)}
    assert (early.transport.is_closed, wiring.store.position) == (True, position)
    readiness.begin()
    late = FakeClient(wiring.service, readiness=readiness).greet()
    assert late.answers() == {0: Done()}


@in_loop
async def test_a_greeting_is_answered_and_requests_may_follow_at_once() -> None:
    wiring = Wiring()
    client = FakeClient(wiring.service)
    client.protocol.data_received(bytes(frame(0, Hello()) + frame(1, CreateQueue("q", QueueConfig()))))
    await turn()
    wiring.store.commit()
    await turn()
    assert client.answers() == {0: Done(), 1: QueueCreated(is_new=True)}


def test_a_key_opens_and_nothing_else_does(tmp_path: Path) -> None:
    keys = key_ring(tmp_path, KeyEntry(name="k", sha256=sha256_of("secret"), scopes=["admin"]))

    @in_loop
    async def work() -> None:
        wiring = Wiring()
        assert FakeClient(wiring.service, keys).greet(b"secret").answers() == {0: Done()}
        for token in (b"", b"secre", b"secret1", b"Secret"):
            client = FakeClient(wiring.service, keys).greet(token)
            assert refused(client.answers()[0]) == "AccessDenied"
            assert client.transport.is_closed
            client.ask((1, CreateQueue("q", QueueConfig())))
            await turn()
        assert list(wiring.service.connections) != []
        assert wiring.store.position == 1, "only the server's own record"

    work()


def test_each_key_has_its_own_namespace_and_scopes(tmp_path: Path) -> None:
    keys = key_ring(
        tmp_path,
        KeyEntry(name="acme", sha256=sha256_of("a"), scopes=["admin", "publish"], namespace="acme"),
        KeyEntry(name="till", sha256=sha256_of("t"), scopes=["publish"], namespace="shop"),
    )

    @in_loop
    async def work() -> None:
        wiring = Wiring()
        acme, till = (FakeClient(wiring.service, keys).greet(secret) for secret in (b"a", b"t"))
        acme.ask((1, CreateQueue("q", QueueConfig())), (2, ListQueues()), (3, Send("q", [SendEntry(b"x")])))
        till.ask((1, CreateQueue("q", QueueConfig())), (2, ListQueues()), (3, Send("acme/q", [SendEntry(b"x")])))
        await turn()
        wiring.store.commit()
        await turn()
        assert acme.answers() == {
            0: Done(),
            1: QueueCreated(is_new=True),
            2: Listed(["q"]),
            3: Sent([SentEntry(1)]),
        }
        answers = till.answers()
        assert answers[2] == Listed([])
        assert [refused(answers[number]) for number in (1, 3)] == ["AccessDenied", "AccessDenied"]
        assert wiring.queues.exists("acme/q")

    work()


def test_whoever_shows_a_key_that_is_removed_is_shown_out(tmp_path: Path) -> None:
    kept = KeyEntry(name="kept", sha256=sha256_of("kept"), scopes=["admin"])
    gone = KeyEntry(name="gone", sha256=sha256_of("gone"), scopes=["admin"])
    keys = key_ring(tmp_path, kept, gone)

    @in_loop
    async def work() -> None:
        wiring = Wiring()
        clients = [FakeClient(wiring.service, keys).greet(secret) for secret in (b"kept", b"gone")]
        key_ring(tmp_path, kept)
        keys.read()
        for client in clients:
            client.protocol.keys_changed()
        assert [client.transport.is_closed for client in clients] == [False, True]
        assert refused(clients[1].answers()[FAULT_NUMBER]) == "AccessDenied"

    work()


@in_loop
async def test_nothing_is_done_before_the_greeting() -> None:
    wiring = Wiring()
    client = FakeClient(wiring.service)
    client.ask((0, CreateQueue("q", QueueConfig())))
    assert refused(client.answers()[FAULT_NUMBER]) == "InvalidValue"
    assert client.transport.is_closed
    assert wiring.store.position == 1


@in_loop
async def test_a_greeting_has_the_number_of_greetings() -> None:
    client = FakeClient(Wiring().service)
    client.protocol.data_received(bytes(frame(5, Hello())))
    assert refused(client.answers()[FAULT_NUMBER]) == "InvalidValue"


@in_loop
async def test_who_says_nothing_is_disconnected() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, greeting_s_max=0.01))
    silent, greeted = FakeClient(wiring.service), FakeClient(wiring.service).greet()
    await until(lambda: silent.transport.is_aborted)
    assert not greeted.transport.is_aborted
    assert list(wiring.service.connections) == [greeted.protocol]


@in_loop
async def test_before_the_greeting_only_small_frames_are_taken() -> None:
    wiring = Wiring()
    for size_bytes in (LIMITS.hello_bytes_max + 1, 45 << 20, LIMITS.frame_bytes_max):
        client = FakeClient(wiring.service)
        client.protocol.data_received(struct.pack(">II", size_bytes, 0) + b"x" * 100)
        assert refused(client.answers()[FAULT_NUMBER]) == "LimitExceeded"
        assert client.transport.is_closed
    client = FakeClient(wiring.service)
    client.protocol.data_received(bytes(frame(0, Hello(b"k" * 4000))))
    assert client.answers() == {0: Done()}
    large = bytes(frame(1, Send("none", [SendEntry(bytes(1 << 20))])))
    client.protocol.data_received(large[: 1 << 19])
    client.protocol.data_received(large[1 << 19 :])
    await turn()
    wiring.store.commit()
    assert refused(client.answers()[1]) == "UnknownQueue"


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_loop
async def test_requests_of_one_turn_are_answered_in_one_piece() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.answers()
    client.ask(*((number, Send("q", [SendEntry(b"%d" % number)])) for number in range(1, 9)))
    await turn()
    assert client.answers() == {}
    assert wiring.store.is_hurried
    wiring.store.commit()
    await turn()
    assert len(client.transport.writes) == 2, "the greeting, and all answers together"
    assert set(client.answers()) == set(range(1, 9))


@in_loop
async def test_what_nobody_waits_for_is_not_hurried() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Send("q", [SendEntry(b"one")])))
    await turn()
    wiring.store.commit()
    client.ask((2, Receive("q")))
    await turn()
    answer = client.answers()[2]
    assert isinstance(answer, Received)
    assert len(answer.deliveries) == 1
    assert wiring.store.staged_bytes > 0
    assert not wiring.store.is_hurried


@in_loop
async def test_answers_come_in_any_order() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.answers()
    client.ask((1, Receive("q", wait_ms=20_000)), (2, Receive("q", wait_ms=0)))
    await turn()
    assert client.answers() == {2: Received([])}
    client.ask((3, Send("q", [SendEntry(b"one")])))
    await turn()
    wiring.store.commit()
    await turn()
    assert set(client.answers()) == {1, 3}


# ── clients that misbehave ────────────────────────────────────────────────────────────────────────────────────────────


@in_loop
async def test_what_is_no_request_is_refused_and_the_connection_goes_on() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Receive("q", wait_ms=20_000)))
    no_text = b"\x93\xa4send\xa1\xff\x90"
    for content in (
        b"\xc1",
        b"\x91\xa4nope",
        b"\x93\xa4send\xa1q\x01",
        no_text,
        bytes(frame(0, Refused("a", "b"))[8:]),
    ):
        client.answers()
        client.protocol.data_received(struct.pack(">II", len(content) + 4, 7) + content)
        await turn()
        assert refused(client.answers()[7]) == "InvalidValue"
        assert wiring.service.waiting_total == 1, "its other requests go on"
    client.ask((2, Send("q", [SendEntry(b"later")])))
    await turn()
    wiring.store.commit()
    await turn()
    assert set(client.answers()) == {1, 2}
    assert wiring.failures == []


@in_loop
async def test_answers_that_were_due_leave_before_the_fault() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.protocol.data_received(bytes(frame(1, Receive("q", wait_ms=0))) + struct.pack(">II", 0, 0))
    assert set(client.answers()) == {0, 1, FAULT_NUMBER}


@in_loop
async def test_an_oversized_frame_is_refused_by_its_header() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, frame_bytes_max=1000))
    client = FakeClient(wiring.service).greet()
    client.protocol.data_received(struct.pack(">II", 1001, 7))
    assert refused(client.answers()[FAULT_NUMBER]) == "LimitExceeded"
    assert client.transport.is_closed


@in_loop
async def test_a_closed_connection_that_nobody_reads_is_cut_in_the_end() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, stop_s_max=0.01))
    client = FakeClient(wiring.service).greet()
    client.transport.is_stuck = True
    client.protocol.data_received(struct.pack(">II", 0, 7))
    await until(lambda: client.transport.is_aborted)


@in_loop
async def test_a_closed_connection_that_is_read_a_little_is_cut_all_the_same() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, stop_s_max=0.01))
    client = FakeClient(wiring.service).greet()
    client.transport.is_stuck = True
    client.protocol.pause_writing()
    client.protocol.close()
    client.protocol.resume_writing()
    await until(lambda: client.transport.is_aborted)


@in_loop
async def test_who_hangs_up_is_forgotten() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Receive("q", wait_ms=20_000)), (2, Send("p", [SendEntry(b"x")])))
    client.protocol.connection_lost(None)
    assert (wiring.service.waiting_total, len(wiring.service.connections)) == (0, 0)
    wiring.store.commit()
    await turn()


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_loop
async def test_requests_stay_unread_while_too_many_have_no_answer() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, outstanding_max=3))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask(*((number, Send("q", [SendEntry(b"x")])) for number in range(1, 4)))
    assert client.transport.reads
    client.ask((4, Send("q", [SendEntry(b"x")])))
    assert not client.transport.reads
    wiring.store.commit()
    await turn()
    assert client.transport.reads


@in_loop
async def test_what_came_before_the_pause_is_taken_after_it_in_order() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, outstanding_max=3))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.answers()
    before = wiring.store.position
    client.ask(*((number, Send("q", [SendEntry(b"%d" % number)])) for number in range(1, 11)))
    assert wiring.store.position == before + 4
    heard: list[int] = []
    while len(heard) < 10:
        assert client.transport.reads == (len(heard) >= 8)
        wiring.store.commit()
        await turn()
        heard += client.answers()
    assert heard == list(range(1, 11))


@in_loop
async def test_answers_that_are_large_stop_the_reading_before_they_are_many() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_bytes_high=10_000))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Send("q", [SendEntry(bytes(6000))])))
    await turn()
    wiring.store.commit()
    await turn()
    client.transport.on_write = client.protocol.pause_writing
    client.ask(*((number, Peek("q")) for number in range(2, 1000)))
    await turn()
    assert sum(map(len, client.transport.writes)) < 20_000
    assert not client.transport.reads
    client.transport.on_write = lambda: None
    client.protocol.resume_writing()
    for _ in range(10):
        await turn()
    assert set(client.answers()) == set(range(1000))


@in_loop
async def test_a_thousand_requests_at_once_let_others_have_their_turn() -> None:
    wiring = Wiring(turns=Turns(asyncio.get_running_loop(), clock=WorkClock()))
    await wiring.create()
    eager, modest = FakeClient(wiring.service).greet(), FakeClient(wiring.service).greet()
    eager.answers()
    eager.ask(*((number, Receive("q", wait_ms=0)) for number in range(1, 1001)))
    modest.ask((1, Receive("q", wait_ms=0)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert 1 in modest.answers()
    assert len(eager.answers()) < 100
    for _ in range(50):
        await turn()
    assert 1000 in eager.answers()
    assert eager.transport.reads


@in_loop
async def test_receives_that_wait_do_not_block_other_requests() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, outstanding_max=3))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask(*((number, Receive("q", wait_ms=20_000)) for number in range(1, 10)))
    assert client.transport.reads
    client.ask((10, Send("q", [SendEntry(b"x")])))
    assert client.transport.reads
    await turn()
    wiring.store.commit()
    await turn()
    assert set(client.answers()) >= {1, 10}


@in_loop
async def test_who_does_not_read_is_not_read_and_then_disconnected() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_s_max=0.01))
    client = FakeClient(wiring.service).greet()
    client.protocol.pause_writing()
    assert not client.transport.reads
    await until(lambda: client.transport.is_aborted)
    assert len(wiring.service.connections) == 0


@in_loop
async def test_who_reads_again_is_read_again() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, unread_s_max=0.01))
    client = FakeClient(wiring.service).greet()
    client.protocol.pause_writing()
    client.protocol.resume_writing()
    assert client.transport.reads
    await asyncio.sleep(0.03)
    assert not client.transport.is_aborted


@in_loop
async def test_a_disk_that_is_behind_stops_everybody_and_lets_them_go_on() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, staged_bytes_max=5000))
    await wiring.create()
    busy, idle = FakeClient(wiring.service).greet(), FakeClient(wiring.service).greet()
    busy.ask((1, Send("q", [SendEntry(bytes(6000))])))
    await turn()
    late = FakeClient(wiring.service)
    assert [client.transport.reads for client in (busy, idle, late)] == [False] * 3
    wiring.store.commit()
    await turn()
    assert [client.transport.reads for client in (busy, idle, late)] == [True] * 3
    assert isinstance(busy.answers()[1], Sent)


@in_loop
async def test_two_reasons_to_pause_must_both_be_over() -> None:
    wiring = Wiring(msgspec.structs.replace(LIMITS, staged_bytes_max=5000))
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.ask((1, Send("q", [SendEntry(bytes(6000))])))
    await turn()
    client.protocol.pause_writing()
    wiring.store.commit()
    await turn()
    assert not client.transport.reads
    client.protocol.resume_writing()
    assert client.transport.reads


@in_loop
async def test_a_failed_disk_answers_nobody() -> None:
    wiring = Wiring()
    await wiring.create()
    client = FakeClient(wiring.service).greet()
    client.answers()
    client.ask((1, Send("q", [SendEntry(b"x")])))
    await turn()
    wiring.store.on_failed(StorageFailed("the disk is gone"))
    wiring.store.commit()
    client.ask((2, Receive("q", wait_ms=0)))
    await turn()
    assert client.answers() == {}
    assert [str(failure) for failure in wiring.failures] == ["the disk is gone"]
