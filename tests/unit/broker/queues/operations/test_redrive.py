"""Moves: dead letters go back to where they came from, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.broker.queues.machines import MINUTE_MS, Q, QueueMachine, bodies, machine_with, receipts

from lavant.broker.protocol.queues import (
    CancelMove,
    DeleteQueue,
    ListMoves,
    Moved,
    Moves,
    MoveSome,
    MoveStarted,
    MoveState,
    StartMove,
)
from lavant.broker.queues.accounting.quotas import QueueLimits
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, MoveRunning, UnknownMove, UnknownQueue

DEAD, OTHER = "dead", "other"
BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


def machine_with_letters(*letters: bytes, order: str = "out-of-order", room: int = 100) -> QueueMachine:
    """A machine with dead letters of `Q`, and another queue."""
    machine = machine_with(DEAD, order=order)
    machine.create(Q, order=order, dead_letters=DEAD, receives_max=1, depth_max=room)
    machine.create(OTHER, order=order)
    if letters:
        machine.send(*letters)
        for _ in range(2):
            machine.receive(len(letters), visibility_ms=0)
        assert machine.states(DEAD) == (len(letters), 0, 0)
    return machine


def start(machine: QueueMachine, destination: str | None = None, source: str = DEAD) -> int:
    return machine.ask(StartMove(source, destination), MoveStarted).task


def step(machine: QueueMachine, task: int, count: int = 100) -> MoveState:
    return machine.ask(MoveSome(task, count), Moved).state


@BOTH_ORDERS
def test_dead_letters_go_back_with_their_numbers_and_start_afresh(order: str) -> None:
    machine = machine_with_letters(b"1", b"2", order=order)
    state = step(machine, start(machine))
    assert (state.status, state.moved, state.total, state.destination) == ("completed", 2, 2, None)
    assert machine.states(DEAD) == (0, 0, 0)
    first, second = machine.receive(5)
    assert (first.body, first.receipt.number, first.receive_count, first.origin) == (b"1", 1, 1, None)
    assert second.receipt.number == 2


def test_a_move_goes_step_by_step() -> None:
    machine = machine_with_letters(b"1", b"2", b"3")
    task = start(machine)
    assert [state.task for state in machine.moves_running()] == [task]
    assert [(s.moved, s.status) for s in (step(machine, task, 1) for _ in range(3))] == [
        (1, "running"),
        (2, "running"),
        (3, "completed"),
    ]
    assert machine.moves_running() == []
    assert machine.changed
    assert step(machine, task).moved == 3
    assert not machine.changed


@BOTH_ORDERS
def test_messages_can_go_elsewhere(order: str) -> None:
    machine = machine_with_letters(b"1", order=order)
    machine.send(b"sent here", queue=DEAD)
    assert step(machine, start(machine, OTHER)).moved == 2
    assert bodies(machine.receive(5, queue=OTHER)) == [b"1", b"sent here"]


def test_in_order_a_message_that_comes_back_takes_its_old_place() -> None:
    machine = machine_with_letters(b"1", b"2", order="in-order")
    machine.send(b"3", b"4")
    step(machine, start(machine))
    assert bodies(machine.receive(4)) == [b"1", b"2", b"3", b"4"]


def test_in_order_a_message_that_comes_back_does_not_let_another_overtake_it() -> None:
    machine = machine_with_letters(b"1", order="in-order")
    machine.send(b"2", b"3")
    assert machine.visible(Q, 0)  # with 2
    step(machine, start(machine))
    (first,) = machine.receive(visibility_ms=100)
    assert first.body == b"1"
    assert not machine.visible(Q, 0)
    assert machine.receive() == []
    machine.acknowledge(first.receipt)
    assert bodies(machine.receive(2)) == [b"2", b"3"]
    assert machine.receive() == []


def test_what_is_in_flight_or_delayed_stays() -> None:
    machine = machine_with_letters(b"1", b"2", b"3")
    machine.send(b"later", queue=DEAD, delay_ms=1000)
    (busy,) = machine.receive(queue=DEAD)
    state = step(machine, start(machine))
    assert (state.status, state.moved, state.total) == ("completed", 2, 2)
    assert machine.states(DEAD) == (0, 1, 1)
    assert machine.acknowledge(busy.receipt, queue=DEAD) == {}


def test_a_move_is_complete_when_no_more_are_visible() -> None:
    machine = machine_with_letters(b"1", b"2", b"3")
    task = start(machine)
    machine.acknowledge(*receipts(machine.receive(2, queue=DEAD)), queue=DEAD)
    state = step(machine, task)
    assert (state.status, state.moved, state.total) == ("completed", 1, 3)


def test_a_message_that_fails_again_is_not_moved_again() -> None:
    machine = machine_with_letters(b"1", b"2")
    task = start(machine)
    step(machine, task, 1)
    for _ in range(2):
        machine.receive(visibility_ms=0)
    assert machine.states(DEAD) == (2, 0, 0)
    state = step(machine, task)
    assert (state.status, state.moved) == ("completed", 2)
    assert machine.states(DEAD) == (1, 0, 0)
    assert machine.peek(DEAD)[0].body == b"1"


def test_an_empty_queue_is_moved_in_no_time() -> None:
    machine = machine_with_letters()
    assert step(machine, start(machine)).status == "completed"


def test_the_retention_counts_from_the_move_back() -> None:
    machine = QueueMachine()
    machine.create(DEAD, retention_ms=10 * MINUTE_MS)
    machine.create(Q, dead_letters=DEAD, receives_max=1, retention_ms=MINUTE_MS)
    machine.send(b"1")
    for _ in range(2):
        machine.receive(visibility_ms=0)
    machine.advance(5 * MINUTE_MS)
    step(machine, start(machine))
    machine.send(b"2")
    assert machine.states(now_ms=6 * MINUTE_MS - 1) == (2, 0, 0)
    assert machine.states(now_ms=6 * MINUTE_MS) == (0, 0, 0)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda machine: machine.handle(DeleteQueue(Q), 0), "no queue 'orders' any more"),
        (lambda machine: machine.send(b"", b""), "is full"),
        (lambda machine: (machine.handle(DeleteQueue(Q), 0), machine.create(Q, order="in-order")), "is in-order now"),
    ],
)
def test_a_move_fails_when_a_message_has_nowhere_to_go(spoil: Callable[[QueueMachine], object], words: str) -> None:
    machine = machine_with_letters(b"1", b"2", room=2)
    task = start(machine)
    spoil(machine)
    state = step(machine, task)
    assert (state.status, state.moved) == ("failed", 0)
    assert words in state.reason
    assert machine.states(DEAD) == (2, 0, 0)
    assert bodies(machine.receive(2, queue=DEAD)) == [b"1", b"2"]


def test_a_move_fails_at_a_message_that_is_no_dead_letter() -> None:
    machine = machine_with_letters(b"1")
    machine.send(b"sent here", queue=DEAD)
    state = step(machine, start(machine))
    assert (state.status, state.moved) == ("failed", 1)
    assert "message 2 is no dead letter" in state.reason


def test_a_move_can_be_cancelled() -> None:
    machine = machine_with_letters(b"1", b"2")
    task = start(machine)
    step(machine, task, 1)
    assert machine.ask(CancelMove(task), Moved).state.status == "cancelled"
    assert machine.changed
    assert step(machine, task).moved == 1
    assert machine.states(DEAD) == (1, 0, 0)
    assert machine.ask(CancelMove(task), Moved).state.status == "cancelled"


def test_a_move_that_is_complete_cannot_be_cancelled_any_more() -> None:
    machine = machine_with_letters(b"1")
    task = start(machine)
    step(machine, task)
    assert machine.ask(CancelMove(task), Moved).state.status == "completed"
    assert not machine.changed


def test_one_move_at_a_time_leaves_a_queue() -> None:
    machine = machine_with_letters(b"1")
    task = start(machine)
    with pytest.raises(MoveRunning, match=f"move {task} from queue 'dead' is running"):
        start(machine, OTHER)
    start(machine, OTHER, source=Q)
    machine.handle(CancelMove(task), 0)
    start(machine)


def test_only_so_many_moves_run_at_once() -> None:
    machine = machine_with_letters(b"1")
    machine.limits = QueueLimits(moves_max=1)
    start(machine)
    with pytest.raises(LimitExceeded, match="1 moves are running"):
        start(machine, OTHER, source=Q)


def test_the_latest_moves_of_a_queue_are_remembered() -> None:
    machine = machine_with_letters(b"1")
    start(machine, OTHER, source=Q)
    tasks = []
    for n in range(12):
        machine.advance(n)
        tasks.append(start(machine))
        step(machine, tasks[-1])
    moves = machine.ask(ListMoves(DEAD), Moves).moves
    assert [move.task for move in moves] == tasks[:1:-1]
    assert (moves[0].started_ms, moves[0].source) == (11, DEAD)
    assert len(machine.ask(ListMoves(Q), Moves).moves) == 1


def test_the_moves_of_a_deleted_queue_are_forgotten() -> None:
    machine = machine_with_letters(b"1")
    task = start(machine)
    machine.handle(DeleteQueue(DEAD), 0)
    assert machine.moves_running() == []
    with pytest.raises(UnknownMove, match=f"no move {task}"):
        step(machine, task)
    with pytest.raises(UnknownMove):
        machine.handle(CancelMove(task), 0)
    assert not machine.changed


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (StartMove("nobody"), UnknownQueue),
        (StartMove(DEAD, "nobody"), UnknownQueue),
        (StartMove(DEAD, DEAD), InvalidValue),
        (StartMove(DEAD, "in-order"), InvalidValue),
        (StartMove(DEAD, rate_per_s=0), InvalidValue),
        (ListMoves("nobody"), UnknownQueue),
        (MoveSome(7, 1), UnknownMove),
    ],
)
def test_a_move_is_refused(request_: StartMove | ListMoves | MoveSome, error: type[LavantError]) -> None:
    machine = machine_with_letters(b"1")
    machine.create("in-order", order="in-order")
    with pytest.raises(error):
        machine.handle(request_, 0)
    assert machine.moves_running() == []


def test_a_step_has_a_size() -> None:
    machine = machine_with_letters(b"1")
    task = start(machine)
    for count, error in [(0, InvalidValue), (1001, LimitExceeded)]:
        with pytest.raises(error):
            step(machine, task, count)


# ── namespaces ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_written_before_moves_had_a_namespace_means_what_it_did() -> None:
    state = msgspec.msgpack.encode([7, "dead", None, None, 0, 3, 1, "running", ""])
    assert msgspec.msgpack.decode(state, type=MoveState).namespace is None
    for content, expected in (
        (["start-move", "dead", None, 5], StartMove("dead", None, 5)),
        (["cancel-move", 7], CancelMove(7)),
    ):
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(content), type=StartMove | CancelMove)
        assert (decoded, decoded.namespace) == (expected, None)
