"""Fair turns of the event loop, with a clock that moves only when somebody works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.unit.service.key_rings import key_ring
from tests.unit.service.wiring import FakeClient, FakeStore, Wiring, WorkClock, in_loop, turn

from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import CreateQueue, Receive, Send, SendEntry, Sent
from lavant.broker.protocol.subscriptions import Publish, Subscribe
from lavant.service.auth.keys import KeyEntry, sha256_of
from lavant.service.runtime.limits import LIMITS
from lavant.service.runtime.turns import CALL_S, QUANTUM_S, SLICE_S, Turns


class Steps:
    """Work in so many steps, of which each takes a quantum."""

    cost_s = 0.0

    def __init__(self, name: str, count: int, log: list[str], clock: WorkClock) -> None:
        self.name, self.left, self.log, self.clock = name, count, log, clock

    def take(self, until_s: float) -> bool:
        self.left -= 1
        self.log.append(self.name)
        self.clock.now_s = until_s
        return self.left > 0


@in_loop
async def test_work_that_comes_alone_is_done_at_once() -> None:
    clock, log = WorkClock(0.0), list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    turns.enter("a", Steps("a", 2, log, clock))
    assert log == ["a", "a"]
    assert turns.waiting == 0


@in_loop
async def test_a_slice_is_all_that_is_done_before_the_loop_goes_on() -> None:
    clock, log = WorkClock(0.0), list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    turns.enter("a", Steps("a", 1000, log, clock))
    a_round = round(SLICE_S / QUANTUM_S)
    assert a_round <= len(log) <= a_round + 1
    rounds = 0
    while turns.waiting:
        done = len(log)
        await asyncio.sleep(0)
        assert len(log) - done <= a_round + 1
        rounds += 1
    assert len(log) == 1000
    assert rounds >= 1000 // (a_round + 1) - 1


@in_loop
async def test_whoever_comes_to_a_backlog_has_its_turn_next() -> None:
    clock, log = WorkClock(0.0), list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    for number in range(50):
        turns.enter("noisy", Steps(f"n{number}", 100, log, clock))
    before = len(log)
    turns.enter("quiet", Steps("q", 1, log, clock))
    await asyncio.sleep(0)
    assert "q" in log[before : before + 2]


@in_loop
async def test_connections_of_one_namespace_take_turns_too() -> None:
    clock, log = WorkClock(0.0), list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    for name in "abc":
        turns.enter("noisy", Steps(name, 20, log, clock))
    while turns.waiting:
        await asyncio.sleep(0)
    start = log.index("c")
    assert {log[start + place] for place in range(3)} == set("abc")


@in_loop
async def test_calls_wait_for_their_turn_when_there_are_too_many() -> None:
    clock = WorkClock(0.0)
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    done: list[str] = []

    async def call(namespace: str) -> None:
        await turns.wait(namespace)
        done.append(namespace)

    noisy = [asyncio.ensure_future(call("noisy")) for _ in range(200)]
    quiet = asyncio.ensure_future(call("quiet"))
    await quiet
    assert len(done) <= 3 * SLICE_S / CALL_S, "200 others did not go first"
    await asyncio.gather(*noisy)
    assert done.count("noisy") == 200


@in_loop
async def test_a_call_that_is_cancelled_while_it_waits_costs_nothing() -> None:
    turns = Turns(asyncio.get_running_loop(), clock=WorkClock(0.0))
    calls = [asyncio.ensure_future(turns.wait("a")) for _ in range(100)]
    await asyncio.sleep(0)
    for each in calls[:-1]:
        each.cancel()
    await calls[-1]
    assert turns.waiting == 0


@in_loop
async def test_who_is_held_waits_and_goes_on_when_it_is_released() -> None:
    clock, log = WorkClock(0.0), list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=clock)
    turns.hold("a")
    turns.enter("a", Steps("a", 1, log, clock))
    waiting = asyncio.ensure_future(turns.wait("a"))
    turns.enter("b", Steps("b", 1, log, clock))
    await turn()
    assert log == ["b"]
    assert not waiting.done()
    turns.release("a")
    await waiting
    assert log == ["b", "a"]


# ── through the front ends ────────────────────────────────────────────────────────────────────────────────────────────

NAMES = ("noisy", "quiet")


def with_two_tenants(
    directory: Path, *, clock: Callable[[], float] | None = None, staged_bytes_fair: int = 8 << 20
) -> tuple[Wiring, Callable[[str], FakeClient]]:
    entries = [
        KeyEntry(name=name, sha256=sha256_of(name), scopes=["admin", "publish", "subscribe"], namespace=name)
        for name in NAMES
    ]
    keys = key_ring(directory, *entries)
    turns = Turns(asyncio.get_running_loop(), clock=WorkClock() if clock is None else clock)
    wiring = Wiring(
        msgspec.structs.replace(LIMITS, staged_bytes_fair=staged_bytes_fair), store=FakeStore(), turns=turns
    )
    return wiring, lambda name: FakeClient(wiring.service, keys).greet(name.encode())


def test_a_request_goes_ahead_of_a_backlog_on_many_connections(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        wiring, client = with_two_tenants(tmp_path)
        noisy, quiet = [client("noisy") for _ in range(100)], client("quiet")
        wiring.store.commit()
        for each in noisy:
            each.ask(*((number, Receive("none", wait_ms=0)) for number in range(1, 51)))
        quiet.ask((2, Receive("none", wait_ms=0)))
        for _ in range(3):
            await asyncio.sleep(0)
        answered = sum(len(each.answers()) for each in noisy)
        assert 2 in quiet.answers()
        assert answered < 300, "of 5000"
        for _ in range(2000):
            await asyncio.sleep(0)
        assert answered + sum(len(each.answers()) for each in noisy) == 100 * 51, "and nothing of it is lost"
        assert all(each.transport.reads for each in noisy)

    work()


def test_requests_of_one_connection_keep_their_order_over_many_turns(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        wiring, client = with_two_tenants(tmp_path)
        one = client("quiet")
        one.ask((1, CreateQueue("q", QueueConfig(order="in-order"))))
        one.ask(*((number, Send("q", [SendEntry(b"%d" % number, group="g")])) for number in range(2, 300)))
        other = client("noisy")
        other.ask(*((number, Receive("none", wait_ms=0)) for number in range(1, 300)))
        for _ in range(500):
            await asyncio.sleep(0)
        wiring.store.commit()
        await turn()
        answers = one.answers()
        sent = [answers[number] for number in range(2, 300)]
        assert [each.entries[0].number for each in sent if isinstance(each, Sent)] == list(range(1, 299))  # type: ignore[union-attr]

    work()


def test_what_arrives_in_spite_of_a_pause_comes_behind_the_backlog(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        wiring, client = with_two_tenants(tmp_path)
        wiring.store.commit()
        one = client("quiet")
        one.answers()
        one.ask(*((number, Receive("none", wait_ms=0)) for number in range(1, 100)))
        assert not one.transport.reads
        one.ask(*((number, Receive("none", wait_ms=0)) for number in range(100, 200)))
        for _ in range(200):
            await asyncio.sleep(0)
        assert list(one.answers()) == list(range(1, 200))
        assert one.transport.reads

    work()


def test_who_stages_too_much_for_the_disk_waits_and_others_do_not(tmp_path: Path) -> None:
    @in_loop
    async def work() -> None:
        wiring, client = with_two_tenants(tmp_path, staged_bytes_fair=50_000)
        noisy, quiet = client("noisy"), client("quiet")
        for each in (noisy, quiet):
            each.ask((1, CreateQueue("q", QueueConfig())))
            await turn()
        wiring.store.commit()
        noisy.ask(*((number, Send("q", [SendEntry(bytes(1000))])) for number in range(2, 400)))
        for _ in range(1000):
            await asyncio.sleep(0)
        staged = wiring.store.staged_bytes
        assert 50_000 < staged < 150_000, "of 400 000"
        quiet.ask((2, Send("q", [SendEntry(b"x")])))
        await turn()
        assert wiring.store.staged_bytes > staged, "the other's is taken in nevertheless"
        heard: set[int] = set()
        for _ in range(20):
            wiring.store.commit()
            for _ in range(200):
                await asyncio.sleep(0)
            heard |= set(noisy.answers())
        assert isinstance(quiet.answers()[2], Sent)
        assert heard == set(range(400))

    work()


def test_a_publication_goes_ahead_of_the_publications_of_others(tmp_path: Path) -> None:
    """Also if they are matched one batch after the other."""

    @in_loop
    async def work() -> None:
        wiring, client = with_two_tenants(tmp_path)
        noisy, quiet = client("noisy"), client("quiet")
        for each in (noisy, quiet):
            each.ask((1, Subscribe("a = 1", "s")))
        for _ in range(200):
            await asyncio.sleep(0.001)
            wiring.store.commit()
            if wiring.service.ingest.waiting == 0 and len(wiring.broker.subscriptions) == 2:
                break
        access = wiring.service.ingest
        for number in range(400):
            access.request(noisy.protocol, 10 + number, Publish([b'{"a": 1}'] * 100, namespace="noisy"))
        access.request(quiet.protocol, 10, Publish([b'{"a": 1}'], namespace="quiet"))
        assert access.waiting == 40_001
        while 10 not in quiet.answers():
            wiring.store.commit()
            await asyncio.sleep(0.001)
        assert access.waiting > 30_000, "most of the others' still wait"
        while access.waiting:
            await asyncio.sleep(0.001)

    work()
