"""Moves: dead letters go back to where they came from, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.broker.queues.hubs import MINUTE_MS, Hub, Q, bodies, hub_with, receipts

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
from lavant.broker.queues import QueueLimits
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded, MoveRunning, UnknownMove, UnknownQueue

DEAD, OTHER = "dead", "other"
BOTH_ORDERS = pytest.mark.parametrize("order", ["out-of-order", "in-order"])


def hub_with_letters(*letters: bytes, order: str = "out-of-order", room: int = 100) -> Hub:
    """A hub with dead letters of `Q`, and another queue."""
    hub = hub_with(DEAD, order=order)
    hub.create(Q, order=order, dead_letters=DEAD, receives_max=1, depth_max=room)
    hub.create(OTHER, order=order)
    if letters:
        hub.send(*letters)
        for _ in range(2):
            hub.receive(len(letters), visibility_ms=0)
        assert hub.states(DEAD) == (len(letters), 0, 0)
    return hub


def start(hub: Hub, destination: str | None = None, source: str = DEAD) -> int:
    return hub.ask(StartMove(source, destination), MoveStarted).task


def step(hub: Hub, task: int, count: int = 100) -> MoveState:
    return hub.ask(MoveSome(task, count), Moved).state


@BOTH_ORDERS
def test_dead_letters_go_back_with_their_numbers_and_start_afresh(order: str) -> None:
    hub = hub_with_letters(b"1", b"2", order=order)
    state = step(hub, start(hub))
    assert (state.status, state.moved, state.total, state.destination) == ("completed", 2, 2, None)
    assert hub.states(DEAD) == (0, 0, 0)
    first, second = hub.receive(5)
    assert (first.body, first.receipt.number, first.receive_count, first.origin) == (b"1", 1, 1, None)
    assert second.receipt.number == 2


def test_a_move_goes_step_by_step() -> None:
    hub = hub_with_letters(b"1", b"2", b"3")
    task = start(hub)
    assert [state.task for state in hub.moves_running()] == [task]
    assert [(s.moved, s.status) for s in (step(hub, task, 1) for _ in range(3))] == [
        (1, "running"),
        (2, "running"),
        (3, "completed"),
    ]
    assert hub.moves_running() == []
    assert hub.changed
    assert step(hub, task).moved == 3
    assert not hub.changed


@BOTH_ORDERS
def test_messages_can_go_elsewhere(order: str) -> None:
    hub = hub_with_letters(b"1", order=order)
    hub.send(b"sent here", queue=DEAD)
    assert step(hub, start(hub, OTHER)).moved == 2
    assert bodies(hub.receive(5, queue=OTHER)) == [b"1", b"sent here"]


def test_in_order_a_message_that_comes_back_takes_its_old_place() -> None:
    hub = hub_with_letters(b"1", b"2", order="in-order")
    hub.send(b"3", b"4")
    step(hub, start(hub))
    assert bodies(hub.receive(4)) == [b"1", b"2", b"3", b"4"]


def test_in_order_a_message_that_comes_back_does_not_let_another_overtake_it() -> None:
    hub = hub_with_letters(b"1", order="in-order")
    hub.send(b"2", b"3")
    assert hub.visible(Q, 0)  # with 2
    step(hub, start(hub))
    (first,) = hub.receive(visibility_ms=100)
    assert first.body == b"1"
    assert not hub.visible(Q, 0)
    assert hub.receive() == []
    hub.acknowledge(first.receipt)
    assert bodies(hub.receive(2)) == [b"2", b"3"]
    assert hub.receive() == []


def test_what_is_in_flight_or_delayed_stays() -> None:
    hub = hub_with_letters(b"1", b"2", b"3")
    hub.send(b"later", queue=DEAD, delay_ms=1000)
    (busy,) = hub.receive(queue=DEAD)
    state = step(hub, start(hub))
    assert (state.status, state.moved, state.total) == ("completed", 2, 2)
    assert hub.states(DEAD) == (0, 1, 1)
    assert hub.acknowledge(busy.receipt, queue=DEAD) == {}


def test_a_move_is_complete_when_no_more_are_visible() -> None:
    hub = hub_with_letters(b"1", b"2", b"3")
    task = start(hub)
    hub.acknowledge(*receipts(hub.receive(2, queue=DEAD)), queue=DEAD)
    state = step(hub, task)
    assert (state.status, state.moved, state.total) == ("completed", 1, 3)


def test_a_message_that_fails_again_is_not_moved_again() -> None:
    hub = hub_with_letters(b"1", b"2")
    task = start(hub)
    step(hub, task, 1)
    for _ in range(2):
        hub.receive(visibility_ms=0)
    assert hub.states(DEAD) == (2, 0, 0)
    state = step(hub, task)
    assert (state.status, state.moved) == ("completed", 2)
    assert hub.states(DEAD) == (1, 0, 0)
    assert hub.peek(DEAD)[0].body == b"1"


def test_an_empty_queue_is_moved_in_no_time() -> None:
    hub = hub_with_letters()
    assert step(hub, start(hub)).status == "completed"


def test_the_retention_counts_from_the_move_back() -> None:
    hub = Hub()
    hub.create(DEAD, retention_ms=10 * MINUTE_MS)
    hub.create(Q, dead_letters=DEAD, receives_max=1, retention_ms=MINUTE_MS)
    hub.send(b"1")
    for _ in range(2):
        hub.receive(visibility_ms=0)
    hub.advance(5 * MINUTE_MS)
    step(hub, start(hub))
    hub.send(b"2")
    assert hub.states(now_ms=6 * MINUTE_MS - 1) == (2, 0, 0)
    assert hub.states(now_ms=6 * MINUTE_MS) == (0, 0, 0)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda hub: hub.handle(DeleteQueue(Q), 0), "no queue 'orders' any more"),
        (lambda hub: hub.send(b"", b""), "is full"),
        (lambda hub: (hub.handle(DeleteQueue(Q), 0), hub.create(Q, order="in-order")), "is in-order now"),
    ],
)
def test_a_move_fails_when_a_message_has_nowhere_to_go(spoil: Callable[[Hub], object], words: str) -> None:
    hub = hub_with_letters(b"1", b"2", room=2)
    task = start(hub)
    spoil(hub)
    state = step(hub, task)
    assert (state.status, state.moved) == ("failed", 0)
    assert words in state.reason
    assert hub.states(DEAD) == (2, 0, 0)
    assert bodies(hub.receive(2, queue=DEAD)) == [b"1", b"2"]


def test_a_move_fails_at_a_message_that_is_no_dead_letter() -> None:
    hub = hub_with_letters(b"1")
    hub.send(b"sent here", queue=DEAD)
    state = step(hub, start(hub))
    assert (state.status, state.moved) == ("failed", 1)
    assert "message 2 is no dead letter" in state.reason


def test_a_move_can_be_cancelled() -> None:
    hub = hub_with_letters(b"1", b"2")
    task = start(hub)
    step(hub, task, 1)
    assert hub.ask(CancelMove(task), Moved).state.status == "cancelled"
    assert hub.changed
    assert step(hub, task).moved == 1
    assert hub.states(DEAD) == (1, 0, 0)
    assert hub.ask(CancelMove(task), Moved).state.status == "cancelled"


def test_a_move_that_is_complete_cannot_be_cancelled_any_more() -> None:
    hub = hub_with_letters(b"1")
    task = start(hub)
    step(hub, task)
    assert hub.ask(CancelMove(task), Moved).state.status == "completed"
    assert not hub.changed


def test_one_move_at_a_time_leaves_a_queue() -> None:
    hub = hub_with_letters(b"1")
    task = start(hub)
    with pytest.raises(MoveRunning, match=f"move {task} from queue 'dead' is running"):
        start(hub, OTHER)
    start(hub, OTHER, source=Q)
    hub.handle(CancelMove(task), 0)
    start(hub)


def test_only_so_many_moves_run_at_once() -> None:
    hub = hub_with_letters(b"1")
    hub.limits = QueueLimits(moves_max=1)
    start(hub)
    with pytest.raises(LimitExceeded, match="1 moves are running"):
        start(hub, OTHER, source=Q)


def test_the_latest_moves_of_a_queue_are_remembered() -> None:
    hub = hub_with_letters(b"1")
    start(hub, OTHER, source=Q)
    tasks = []
    for n in range(12):
        hub.advance(n)
        tasks.append(start(hub))
        step(hub, tasks[-1])
    moves = hub.ask(ListMoves(DEAD), Moves).moves
    assert [move.task for move in moves] == tasks[:1:-1]
    assert (moves[0].started_ms, moves[0].source) == (11, DEAD)
    assert len(hub.ask(ListMoves(Q), Moves).moves) == 1


def test_the_moves_of_a_deleted_queue_are_forgotten() -> None:
    hub = hub_with_letters(b"1")
    task = start(hub)
    hub.handle(DeleteQueue(DEAD), 0)
    assert hub.moves_running() == []
    with pytest.raises(UnknownMove, match=f"no move {task}"):
        step(hub, task)
    with pytest.raises(UnknownMove):
        hub.handle(CancelMove(task), 0)
    assert not hub.changed


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
    hub = hub_with_letters(b"1")
    hub.create("in-order", order="in-order")
    with pytest.raises(error):
        hub.handle(request_, 0)
    assert hub.moves_running() == []


def test_a_step_has_a_size() -> None:
    hub = hub_with_letters(b"1")
    task = start(hub)
    for count, error in [(0, InvalidValue), (1001, LimitExceeded)]:
        with pytest.raises(error):
            step(hub, task, count)


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
