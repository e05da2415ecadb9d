"""Redrive: move the messages of a dead-letter queue back to their source queues, or elsewhere, step by step.

                ┌──► completed    as many as were visible at its start are moved, or no more are visible
    running ────┼──► cancelled    on request
                └──► failed       a message has nowhere to go; it and all after it stay

Messages in flight or delayed stay where they are. A message that fails again and returns to the dead-letter queue is
not moved twice by the same move.
"""

from __future__ import annotations

from msgspec.structs import replace

from lavant.broker.protocol.queue_config import namespace_of
from lavant.broker.protocol.queues import CancelMove, MoveState, StartMove
from lavant.broker.queues.accounting.counters import QueueCounters
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.message import Message
from lavant.broker.queues.operations.receive import transfer
from lavant.broker.queues.queue import QueueState
from lavant.broker.queues.validation import check_range
from lavant.core.errors import InvalidValue, LimitExceeded, MoveRunning, UnknownMove

RATE_PER_S_MAX = 1_000_000
KEPT_MAX = 10
"""Finished moves remembered per queue."""
STEP_MAX = 1000
RUNNING = "running"
_CANCEL = "cancel it with `lavant queue redrive QUEUE --cancel`"


class Redrives:
    """The running moves, and the latest finished ones."""

    def __init__(self, directory: Directory, counters: QueueCounters) -> None:
        self._directory = directory
        self._counters = counters
        self._states: dict[int, MoveState] = {}

    def running(self) -> list[MoveState]:
        return [state for state in self._states.values() if state.status == RUNNING]

    def of(self, source: str) -> list[MoveState]:
        """Moves from a queue, the latest first."""
        return [state for state in reversed(self._states.values()) if state.source == source]

    def find(self, task: int) -> MoveState:
        state = self._states.get(task)
        if state is None:
            raise _unknown(task)
        return state

    def check_start(self, request: StartMove, moves_max: int, *, is_replay: bool) -> QueueState:
        """Return the source queue if the move may start."""
        source = self._directory[request.source]
        if request.destination is not None:
            self._check_destination(source, self._directory[request.destination])
        if request.rate_per_s is not None and not is_replay:
            check_range("rate_per_s", request.rate_per_s, 1, RATE_PER_S_MAX)
        running = self.running()
        for state in running:
            if state.source == source.name:
                raise MoveRunning(f"move {state.task} from queue {source.name!r} is running; wait for it, or {_CANCEL}")
        if len(running) >= moves_max:
            raise LimitExceeded(f"{len(running)} moves are running, which is the limit; wait for one, or {_CANCEL}")
        return source

    def start(self, request: StartMove, source: QueueState, now_ms: int) -> MoveState:
        self._counters.task += 1
        figures = source.figures()
        state = MoveState(
            self._counters.task,
            source.name,
            request.destination,
            request.rate_per_s,
            now_ms,
            total=figures.visible,
            moved=0,
            status=RUNNING,
            reason="",
            namespace=request.namespace,
        )
        self._forget_old(source.name)
        self._states[state.task] = state
        return state

    def step(self, state: MoveState, count: int, now_ms: int) -> tuple[MoveState, list[QueueState]]:
        """Move up to `count` messages; return the move's state and the queues that changed."""
        touched: dict[str, QueueState] = {}
        while state.status == RUNNING and count > 0:
            source = self._directory[state.source]
            message = source.order.first() if state.moved < state.total else None
            if message is None:
                state = replace(state, status="completed")
                break
            target = self._target(state, message)
            if isinstance(target, str):
                state = replace(state, status="failed", reason=target)
                break
            taken = source.order.take(1, 0)
            assert taken == [message]
            transfer(message, source, target, origin=None, now_ms=now_ms)
            touched[source.name], touched[target.name] = source, target
            state = replace(state, moved=state.moved + 1)
            count -= 1
        if state.status == RUNNING and state.moved == state.total:
            state = replace(state, status="completed")
        self._states[state.task] = state
        return state, list(touched.values())

    def check_cancel(self, request: CancelMove) -> MoveState:
        """Return the move if it belongs to that namespace; to others it is unknown."""
        state = self.find(request.task)
        if request.namespace not in (None, namespace_of(state.source)):
            raise _unknown(request.task)
        return state

    def cancel(self, state: MoveState) -> MoveState:
        """Cancel a move; one that is over stays as it is."""
        if state.status == RUNNING:
            state = self._states[state.task] = replace(state, status="cancelled")
        return state

    def forget(self, source: str) -> None:
        """Forget the moves from a queue that is deleted."""
        self._states = {task: state for task, state in self._states.items() if state.source != source}

    def states(self) -> list[MoveState]:
        """All that are remembered, the earliest first."""
        return list(self._states.values())

    def restore(self, states: list[MoveState]) -> None:
        self._states = {state.task: state for state in states}

    def _check_destination(self, source: QueueState, destination: QueueState) -> None:
        if source is destination:
            raise InvalidValue(f"the messages of queue {source.name!r} cannot be moved to itself; choose another queue")
        if source.config.order != destination.config.order:
            raise InvalidValue(
                f"queue {source.name!r} is {source.config.order}, but {destination.name!r} is "
                f"{destination.config.order}; messages can only be moved to a queue of the same order"
            )

    def _target(self, state: MoveState, message: Message) -> QueueState | str:
        """The queue a message goes to, or why it cannot move."""
        name = message.origin if state.destination is None else state.destination
        if name is None:
            return f"message {message.number} is no dead letter: it was sent here; name a destination"
        if state.destination is None and state.namespace not in (None, namespace_of(name)):
            return f"message {message.number} came from a queue of another namespace; name a destination"
        target = self._directory.find(name)
        if target is None:
            return f"there is no queue {name!r} any more for message {message.number}; create it, or name a destination"
        if target.config.order != self._directory[state.source].config.order:
            return f"queue {name!r} is {target.config.order} now, unlike {state.source!r}; name another destination"
        if len(target.messages) >= target.config.depth_max:
            return (
                f"queue {name!r} is full, it may hold {target.config.depth_max} messages; start again when it has room"
            )
        return target

    def _forget_old(self, source: str) -> None:
        """Make room for one more."""
        for state in self.of(source)[KEPT_MAX - 1 :]:
            del self._states[state.task]


def _unknown(task: int) -> UnknownMove:
    return UnknownMove(f"there is no move {task}; `lavant queue info` lists the moves of a queue")
