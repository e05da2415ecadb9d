"""The durable broker: replies to a request when everything that its answer depends on is on disk. Pure.

    request ──► state ──► record of the change ──► journal ──► committed
                 │                                              │
                 └────────────────── answer ────────────────────┴──► reply

An answer depends on:

    a command                                           its own record
    a receive                                           the sends of the messages it delivers, so that no consumer sees
                                                        a message that may still be lost; and the epoch of its leases.
                                                        Not on its own record: if that is lost, the messages are only
                                                        visible again
    a lease of tasks                                    its own record, like any command
    a query, a refusal                                  all records before it
    an acknowledgement with `acknowledge_early`         nothing

The docstring of this package says what becomes of bugs, long polls and temporary subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import numpy as np

from lavant.broker.machine.effects import TIME_BYTES, Effect, Mistake, Observer, Record, Reply, composed
from lavant.broker.machine.leases import SubscriptionLeases, lease_ms_of, release_of
from lavant.broker.machine.long_polls import WAITING_MAX, LongPoll, LongPolls, RequestContext, nothing_for
from lavant.broker.machine.pending import PendingReplies
from lavant.broker.machine.redrive_rate import RedriveRates
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol import federation as f
from lavant.broker.protocol import jobs as j
from lavant.broker.protocol import queues as q
from lavant.broker.protocol import subscriptions as s
from lavant.broker.protocol.commands import Answer, Command, Query, Request
from lavant.broker.protocol.registry import steps_of
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.timers import earliest
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.validation import check_filter
from lavant.core.errors import InternalError, InvalidValue, LavantError, StorageFull, SubscriptionMoving, UnknownQueue

FULL = """the disk of the server is full: nothing new is accepted until there is room; receive and acknowledge \
what is there, and make room on the disk"""
_encode = msgspec.msgpack.Encoder().encode


class BrokerMachine:
    """Requests in, records and replies out. `position` is that of the last record in the journal."""

    def __init__(
        self, broker: BrokerState, *, position: int = 0, acknowledge_early: bool = False, waiting_max: int = WAITING_MAX
    ) -> None:
        self.broker = broker
        self.queues = queues = broker.queues
        self.is_full = False
        """The disk is full: commands that add something are refused, those that remove something are not."""
        self.is_exhausted = False
        """Even the reserve is used up: every change is refused."""
        self.on_routed: Callable[[], None] = lambda: None
        """Called after publications were queued for neighbours; `position` is that of their record."""
        self._observers: dict[type, Observer] = {}
        self._acknowledge_early = acknowledge_early
        self.position = position
        """Of the last record."""
        self._effects: list[Effect] = []
        self._pending = PendingReplies(position, queues.number)
        self._long_polls = LongPolls(waiting_max)
        self._redrive_rates = RedriveRates()
        self._leases = SubscriptionLeases(queues.now_ms)
        self._steps: dict[type, Callable[[Any, RequestContext, int], None]] = {
            request: getattr(self, step) for request, step in self._STEPS.items()
        }

    def observe(self, *observers: Mapping[type, Observer]) -> None:
        """Set all observers, by command type. They are fixed from then on."""
        assert not self._observers, "observers are set once"
        self._observers = composed(*observers)

    # ── stimuli ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, now_ms: int) -> list[Effect]:
        """Before the first request: start a new epoch of leases, resume redrives, and give the client of each temporary
        subscription a whole lease to reconnect."""
        now_ms = self._begin(now_ms)
        self._apply(q.Open(self.queues.epoch + 1, RULES), None, now_ms)
        # No message leaves before that is durable: after a crash, the next start would begin the same epoch again.
        self._pending.begin(self.queues.number, self.position)
        for state in self.queues.moves_running():
            self._redrive_rates.follow(state, now_ms)
        self._leases = SubscriptionLeases(now_ms)
        for subscription in self.broker.subscriptions:
            lease_ms = lease_ms_of(subscription, self.queues)
            if lease_ms:
                self._leases.hold(subscription, now_ms, lease_ms)
        return self._effects

    def request(self, client: Hashable, number: int, request: Request, raw: bytes | None, now_ms: int) -> list[Effect]:
        """Handle a request of a client. `raw` is the request in MessagePack, if it arrived like that."""
        now_ms = self._begin(now_ms)
        if self._long_polls:
            self._wake(now_ms)
        context = RequestContext(client, number, raw)
        try:
            self._steps.get(type(request), self._refuse)(request, context, now_ms)
        except LavantError as error:
            self._reply(context, refusal(error), self.position)
        return self._effects

    def deliver(
        self, delivered: s.Deliver, publishers: list[tuple[RequestContext, Answer]], now_ms: int
    ) -> list[Effect]:
        """Put matched publications into queues, and answer their publishers.

        Raises a `LavantError` if they cannot be accepted; then nothing has changed.
        """
        now_ms = self._begin(now_ms)
        if self._long_polls:
            self._wake(now_ms)
        if delivered.fan_out.bodies or delivered.accepted or delivered.answered or delivered.forgotten:
            self._check_room()
            number = self.queues.number
            self._apply(delivered, None, now_ms)
            if delivered.routed is not None:
                self.on_routed()
            if self.queues.number > number:
                self._pending.sent(self.queues.number, self.position)
        for context, answer in publishers:
            self._reply(context, answer, self.position)
        if self._long_polls:
            for queue in self.queues.names_of(np.frombuffer(delivered.fan_out.queues, INTEGERS).tolist()):
                self._serve(queue, now_ms)
        return self._effects

    def record(
        self, command: Command, client: Hashable, number: int, now_ms: int, *, grows: bool = True, queue: str = ""
    ) -> list[Effect]:
        """Apply a command of the server itself, for a queue or none; the client is answered when it is durable. If it
        does not grow anything, a full disk is no obstacle, and the answer can wait. Raises if it is refused."""
        now_ms = self._begin(now_ms)
        if grows:
            self._check_room()
        context = RequestContext(client, number, None)
        self._reply(context, self._apply(command, None, now_ms), self.position, is_patient=not grows)
        self._pending.sent(self.queues.number, self.position)
        self._serve(queue, now_ms)
        return self._effects

    def committed(self, position: int, now_ms: int) -> list[Effect]:
        """All records up to `position` are durable."""
        now_ms = self._begin(now_ms)
        ready, undeliverable = self._pending.committed(position)
        self._effects += ready
        for reply in undeliverable:
            self._release(reply, now_ms)
        return self._effects

    def undelivered(self, reply: Reply, now_ms: int) -> list[Effect]:
        """A reply could not be sent: release what it leased."""
        self._release(reply, self._begin(now_ms))
        return self._effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Let time pass, to `wakeup_ms` or any other time."""
        now_ms = self._begin(now_ms)
        self._wake(now_ms)
        for step in self._redrive_rates.due(now_ms):
            self._move(step, now_ms)
        for due in self.queues.schedules.due(now_ms):
            self._fire(due, now_ms)
        for poll in self._long_polls.expired(now_ms):
            self._leases.used(poll.request.queue, now_ms)
            self._reply(poll.context, nothing_for(poll.request), 0)
        self._expire(now_ms)
        return self._effects

    def gone(self, client: Hashable) -> None:
        """A client disconnected: end its long polls, and release its leases whose replies wait for the disk."""
        self._long_polls.forget(client)
        self._pending.gone(client, self.position)

    def stop(self, now_ms: int) -> list[Effect]:
        """The server is about to stop: answer all long polls without messages."""
        self._begin(now_ms)
        for poll in self._long_polls.take_all():
            self._reply(poll.context, nothing_for(poll.request), 0)
        return self._effects

    # ── for the world ─────────────────────────────────────────────────────────────────────────────────────────────────

    def wakeup_ms(self) -> int | None:
        """When to call `tick`."""
        return earliest(self.queues.wakeup_ms(), self.queues.sweeps.next_ms(), self._own_wakeup_ms())

    def may_wake_before(self, time_ms: int) -> bool:
        """Whether `wakeup_ms` may be before then: cheap, with false positives."""
        if self.queues.may_wake_before(time_ms):
            return True
        if not (self._long_polls or self._redrive_rates or self._leases):
            return False
        own_ms = self._own_wakeup_ms()
        return own_ms is not None and own_ms < time_ms

    def _own_wakeup_ms(self) -> int | None:
        return earliest(self._long_polls.wakeup_ms(), self._redrive_rates.wakeup_ms(), self._leases.wakeup_ms())

    @property
    def durable(self) -> int:
        """The position of the last durable record."""
        return self._pending.durable

    @property
    def is_commit_awaited(self) -> bool:
        """Whether a client waits for a commit; if not, the commit can be delayed and combined with a later one."""
        return self._pending.is_awaited

    def waiting(self, client: Hashable) -> int:
        """The number of a client's long polls."""
        return self._long_polls.count(client)

    @property
    def waiting_total(self) -> int:
        return len(self._long_polls)

    # ── steps of requests ─────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, request: q.Send, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, context.raw, now_ms)
        self._pending.sent(self.queues.number, self.position)
        self._reply(context, answer, self.position)
        self._serve(request.queue, now_ms)

    def _receive(self, request: q.Receive | j.LeaseTasks, context: RequestContext, now_ms: int) -> None:
        answer = self._take(request, context, now_ms)
        self._leases.used(request.queue, now_ms)
        if answer is not None:
            self._deliver(context, answer, request.queue)
        else:
            wait_ms = self.queues.config(request.queue).wait_ms if request.wait_ms is None else request.wait_ms
            if wait_ms:
                self._long_polls.add(context, request, deadline_ms=now_ms + wait_ms)
            else:
                self._reply(context, nothing_for(request), 0)
        if self._long_polls:
            for queue in self._dead_letters(request.queue):
                self._serve(queue, now_ms)

    def _acknowledge(self, request: q.Acknowledge, context: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, context.raw, now_ms)
        self._leases.used(request.queue, now_ms)
        after = 0 if self._acknowledge_early else self.position
        self._reply(context, answer, after, is_patient=request.is_patient)
        self._serve(request.queue, now_ms)

    def _end_long_polls(self, request: q.EndLongPolls, context: RequestContext, now_ms: int) -> None:
        for poll in self._long_polls.take(context.client, request.queue):
            self._reply(poll.context, nothing_for(poll.request), 0)
        self._reply(context, q.Done(), self.position)

    def _change_queue(self, request: Any, context: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, context.raw, now_ms)
        self._reply(context, answer, self.position)
        self._serve(request.queue, now_ms)

    def _change_visibility(self, request: q.ChangeVisibility, context: RequestContext, now_ms: int) -> None:
        self._leases.used(request.queue, now_ms)
        self._change_queue(request, context, now_ms)

    def _grow_queue(self, request: Any, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        self._change_queue(request, context, now_ms)

    def _subscribe(self, request: s.Subscribe | s.UpdateSubscription, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, context.raw, now_ms)
        if isinstance(answer, s.Subscribed) and answer.subscription.is_temporary:
            self._leases.hold(answer.subscription, now_ms)
        self._reply(context, self._leases.with_ends(answer, now_ms), self.position)

    def _unsubscribe(self, request: s.Unsubscribe, context: RequestContext, now_ms: int) -> None:
        state = self.broker.subscriptions.find(request.namespace, request.name)
        self._unadvertise(request, context, now_ms)
        self._leases.forget(state.number)

    def _advertise(self, request: s.Advertise, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        check_filter(request.filter)  # the engine checks the filters of subscriptions
        self._reply(context, self._apply(request, context.raw, now_ms), self.position)

    def _unadvertise(self, request: s.Unsubscribe | s.Unadvertise, context: RequestContext, now_ms: int) -> None:
        self._reply(context, self._apply(request, context.raw, now_ms), self.position)
        self._serve_orphans(now_ms)

    def _renew_subscription(self, request: s.RenewSubscription, context: RequestContext, now_ms: int) -> None:
        state = self.broker.subscriptions.find(request.namespace, request.name)
        if not state.is_temporary:
            raise InvalidValue(f"subscription {state.name!r} has no lease: it stays until it is unsubscribed")
        self._leases.hold(state, now_ms)
        self._reply(context, self._leases.with_ends(s.Subscribed(state, is_new=False), now_ms), self.position)

    def _change_federation(self, request: f.RemoveNeighbour, context: RequestContext, now_ms: int) -> None:
        self._reply(context, self._apply(request, context.raw, now_ms), self.position)

    def _grow_jobs(self, request: j.DefineJobs | j.SubmitJob, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        self._change_jobs(request, context, now_ms)

    def _change_jobs(self, request: Any, context: RequestContext, now_ms: int) -> None:
        """Apply a command for jobs, which may put new tasks into queues."""
        self._reply(context, self._apply(request, context.raw, now_ms), self.position)
        for queue in self.queues.touched():
            self._serve(queue, now_ms)

    def _start_move(self, request: q.StartMove, context: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, context.raw, now_ms)
        assert isinstance(answer, q.MoveStarted)
        for state in [each for each in self.queues.moves_running() if each.task == answer.task]:
            self._redrive_rates.follow(state, now_ms)
        self._reply(context, answer, self.position)

    def _cancel_move(self, request: q.CancelMove, context: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, context.raw, now_ms)
        assert isinstance(answer, q.Moved)
        self._redrive_rates.follow(answer.state, now_ms)
        self._reply(context, answer, self.position)

    def _query(self, request: Query, context: RequestContext, now_ms: int) -> None:
        """Timers are advanced before the query: they may change something, so their errors are not caught here."""
        self.queues.advance(now_ms)
        try:
            answer = self._leases.with_ends(self.broker.answer(request), now_ms)
        except LavantError as error:
            answer = refusal(error)
        except Exception as error:
            self._effects.append(Mistake(request, error))
            kind = type(request).__name__
            mistake = InternalError(f"the server failed at this {kind}; nothing was changed, and its log says why")
            answer = refusal(mistake)
        self._reply(context, answer, self.position)

    def _refuse(self, request: Request, context: RequestContext, now_ms: int) -> None:
        raise InvalidValue(f"{type(request).__name__} is for the server itself, not for its clients")

    # ── long polls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, now_ms: int) -> None:
        """Let time pass first, so that long polls are served before the new request."""
        for queue in self.queues.advance(now_ms):
            self._serve(queue, now_ms)

    def _serve(self, queue: str, now_ms: int) -> None:
        """A queue changed: serve its long polls with the visible messages."""
        if not self._long_polls:
            return
        queues = [queue]
        while queues:
            name = queues.pop()
            is_served = True
            while is_served and (poll := self._long_polls.first(name)) is not None:
                position = self.position
                is_served = self._serve_one(poll, now_ms)
                if self.position > position:  # also if all that was there went to the dead letters
                    queues += self._dead_letters(name)

    def _serve_orphans(self, now_ms: int) -> None:
        """Answer the long polls of deleted queues."""
        for queue in self._long_polls.queues():
            if not self.queues.exists(queue):
                self._serve(queue, now_ms)

    def _serve_one(self, poll: LongPoll, now_ms: int) -> bool:
        """False if no message is visible."""
        try:
            if not self.queues.visible(poll.request.queue, now_ms):
                return False
            answer = self._take(poll.request, poll.context, now_ms)
        except LavantError as error:  # the queue was deleted, say
            self._long_polls.remove(poll)
            self._reply(poll.context, refusal(error), self.position)
            return True
        if answer is None:
            return False
        self._long_polls.remove(poll)
        self._leases.used(poll.request.queue, now_ms)
        self._deliver(poll.context, answer, poll.request.queue)
        return True

    def _dead_letters(self, queue: str) -> list[str]:
        """The queue into which a receive may have moved messages, and which may have long polls."""
        try:
            dead_letters = self.queues.config(queue).dead_letters
        except UnknownQueue:
            return []
        return [] if dead_letters is None else [dead_letters]

    # ── shared by the steps ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, now_ms: int) -> int:
        """Start a stimulus. The machine's time never goes back, and it is the time in the journal."""
        self._effects = []
        return max(now_ms, self.queues.now_ms)

    def _apply(self, command: Command, raw: bytes | None, now_ms: int) -> Answer:
        """Apply a command to the state, call its observer, and record it."""
        if self.is_exhausted:
            raise StorageFull("the disk is full, and what was kept in reserve is used up; make room on the disk")
        answer: Answer = self.broker.handle(command, now_ms)
        observer = self._observers.get(type(command))
        if observer is not None:
            observer(command, answer)
        if self.broker.changed:
            self.position += 1
            data = now_ms.to_bytes(TIME_BYTES, "big") + (_encode(command) if raw is None else raw)
            self._effects.append(Record(self.position, data))
        return answer

    def _take(
        self, request: q.Receive | j.LeaseTasks, context: RequestContext, now_ms: int
    ) -> q.Received | j.TasksLeased | None:
        """None if there is nothing. If an empty receive changed something, it moved dead letters: more may follow."""
        while True:
            answer: Any = self._apply(request, context.raw, now_ms)
            if answer != nothing_for(request):
                return answer  # type: ignore[no-any-return]
            if not self.queues.changed:
                return None

    def _deliver(self, context: RequestContext, answer: q.Received | j.TasksLeased, queue: str) -> None:
        reply = Reply(context.client, context.number, answer, queue)
        if isinstance(answer, j.TasksLeased):
            self._pending.hold_lease(reply, self.position)
            return
        newest = max([delivery.receipt.number for delivery in answer.deliveries])
        if not self._pending.holds_receive(reply, newest, self.position):
            self._effects.append(reply)

    def _release(self, reply: Reply, now_ms: int) -> None:
        """Release what a reply leased; if that fails, because the queue is deleted, say, the lease expires."""
        command = release_of(reply)
        if command is not None:
            with suppress(LavantError):
                self._apply(command, None, now_ms)
                self._serve(reply.queue, now_ms)

    def _move(self, step: q.MoveSome, now_ms: int) -> None:
        if self.is_full:
            return
        try:
            answer = self._apply(step, None, now_ms)
        except LavantError:  # its queue was deleted, and the move with it
            self._redrive_rates.forget(step.task)
            return
        assert isinstance(answer, q.Moved)
        self._redrive_rates.follow(answer.state, now_ms)
        destination = answer.state.destination
        for queue in self._long_polls.queues() if destination is None else [destination]:
            self._serve(queue, now_ms)

    def _fire(self, due: j.FireSchedule, now_ms: int) -> None:
        try:
            self._check_room()
            self._apply(due, None, now_ms)
        except LavantError:  # there is no room for what the schedule makes: it fires when there is
            self.queues.schedules.pause(now_ms)
        self._pending.sent(self.queues.number, self.position)
        for queue in [*self.queues.touched(), *self._long_polls.queues()]:
            self._serve(queue, now_ms)

    def _expire(self, now_ms: int) -> None:
        """End temporary subscriptions whose leases are over, unless they ended with their queue."""
        for state in [each for each in self._leases.due(now_ms) if each in self.broker.subscriptions]:
            if state.owns_queue and self._long_polls.first(state.queue) is not None:  # its client polls
                self._leases.hold(state, now_ms, lease_ms_of(state, self.queues))
                continue
            try:
                self._apply(s.Unsubscribe(state.name, state.namespace), None, now_ms)
            except (StorageFull, SubscriptionMoving):  # even a deletion needs a record: later
                self._leases.hold(state, now_ms, lease_ms_of(state, self.queues))

    def _check_room(self) -> None:
        if self.is_full:
            raise StorageFull(FULL)

    def _reply(self, context: RequestContext, answer: Answer, after: int, *, is_patient: bool = False) -> None:
        """Reply now, or when the record at position `after` is durable. `after` never goes back, except to 0."""
        reply = Reply(context.client, context.number, answer)
        if after <= self._pending.durable:
            self._effects.append(reply)
        else:
            self._pending.hold(reply, after, is_patient=is_patient)

    _STEPS: ClassVar[dict[type, str]] = steps_of(vars())
