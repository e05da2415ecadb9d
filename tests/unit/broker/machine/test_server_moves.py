"""What a server does by itself, and on a disk without room."""

from __future__ import annotations

from tests.unit.broker.machine.servers import Bench, bench_with_queue, receipts

from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.broker.protocol.queues import (
    Acknowledge,
    Acknowledged,
    CancelMove,
    ConfigureQueue,
    CreateQueue,
    DeleteQueue,
    Done,
    Listed,
    ListMoves,
    ListQueues,
    Moves,
    MoveSome,
    MoveStarted,
    Refused,
    Send,
    SendEntry,
    Sent,
    StartMove,
    TagQueue,
)

# ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def move_bench() -> Bench:
    """Three dead letters of `q` in `dead`."""
    bench = Bench()
    bench.create("dead")
    bench.create("q", QueueConfig(visibility_ms=1, dead_letters="dead", receives_max=1))
    bench.send(b"1", b"2", b"3")
    bench.commit()
    bench.receive(count=3)
    bench.now_ms = 1
    bench.receive(count=3)
    bench.commit()
    return bench


def states(bench: Bench) -> list[tuple[str, int]]:
    return [(move.status, move.moved) for move in bench.do(ListMoves("dead"), Moves).moves]


def run_until(bench: Bench, end_ms: int) -> None:
    while (wakeup_ms := bench.server.wakeup_ms()) is not None and wakeup_ms <= end_ms:
        bench.tick(wakeup_ms)


def test_a_move_goes_by_itself_and_wakes_who_waits() -> None:
    bench = move_bench()
    number = bench.receive("bob", count=3, wait_ms=5000)
    bench.do(StartMove("dead"), MoveStarted)
    run_until(bench, 1000)
    assert states(bench) == [("completed", 3)]
    assert bench.bodies(number, "bob") == [b"1", b"2", b"3"]
    assert any(isinstance(command, MoveSome) for command in bench.commands())
    assert list(bench.replayed().snapshot()) == list(bench.server.queues.snapshot())


def test_a_move_keeps_its_rate() -> None:
    bench = move_bench()
    bench.do(StartMove("dead", None, 2), MoveStarted)
    run_until(bench, 1002)
    assert states(bench) == [("running", 2)]


def test_a_move_that_is_cancelled_stops() -> None:
    bench = move_bench()
    task = bench.do(StartMove("dead", None, 2), MoveStarted).task
    run_until(bench, 600)
    bench.ask(CancelMove(task))
    run_until(bench, 60_000)
    assert states(bench) == [("cancelled", 1)]


def test_a_move_whose_queue_is_deleted_is_forgotten() -> None:
    bench = move_bench()
    bench.do(StartMove("dead", "q", 2), MoveStarted)
    bench.do(DeleteQueue("dead"), Done)
    bench.tick(bench.now_ms + 5000)
    assert bench.server._redrive_rates.wakeup_ms() is None


def test_a_move_goes_on_after_a_restart() -> None:
    bench = move_bench()
    bench.do(StartMove("dead", None, 2), MoveStarted)
    run_until(bench, 600)
    server = BrokerMachine(BrokerState(bench.replayed()), position=len(bench.records))
    server.open(700)
    for now_ms in range(700, 3000, 100):
        server.tick(now_ms)
    answer = server.queues.handle(ListMoves("dead"), 3000)
    assert isinstance(answer, Moves)
    assert [(move.status, move.moved) for move in answer.moves] == [("completed", 3)]


# ── a disk without room ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_what_is_new_and_lets_go_what_is_there() -> None:
    bench = bench_with_queue()
    bench.send(b"one")
    bench.commit()
    bench.server.is_full = True
    for command in (
        Send("q", [SendEntry(b"two")]),
        CreateQueue("r", QueueConfig()),
        ConfigureQueue("q", QueueConfig(delay_ms=1)),
        TagQueue("q", {}),
        StartMove("q"),
    ):
        answer = bench.answer(bench.ask(command))
        assert isinstance(answer, Refused)
        assert answer.code == "StorageFull"
    [receipt] = receipts(bench, bench.receive())
    assert bench.do(Acknowledge("q", [receipt]), Acknowledged) == Acknowledged({})
    bench.server.is_full = False
    assert bench.do(Send("q", [SendEntry(b"two")]), Sent)


def test_a_disk_without_any_room_refuses_every_change_but_answers_questions() -> None:
    bench = bench_with_queue()
    bench.send(b"one")
    bench.commit()
    bench.server.is_exhausted = True
    before = len(bench.records)
    answer = bench.answer(bench.receive())
    assert isinstance(answer, Refused)
    assert answer.code == "StorageFull"
    assert bench.do(ListQueues(), Listed) == Listed(["q"])
    assert len(bench.records) == before


def test_a_full_disk_lets_moves_pause_and_not_fail() -> None:
    bench = move_bench()
    bench.do(StartMove("dead"), MoveStarted)
    bench.server.is_full = True
    bench.tick(500)
    assert states(bench) == [("running", 0)]
    bench.server.is_full = False
    run_until(bench, 1000)
    assert states(bench) == [("completed", 3)]
