"""A broker between its connections and its disk: what may be answered when. Pure.

    request ──► broker ──► record of the change ──► journal ──► committed
                 │                                              │
                 └────────────────── answer ────────────────────┴──► reply

An answer leaves when everything it rests on is durable:

    a command                                           its own record
    a receive                                           the sends of the messages it delivers: nobody sees what may
                                                        still be lost; and the epoch of its leases. Its own record need
                                                        not be durable: were it lost, the messages would only be visible
                                                        again
    a query, a refusal                                  all that the hub had been told before
    an acknowledgement with `acknowledge_early`         nothing

A mistake in a query, any exception that is no `LavantError`, is answered with an internal error and told as a
`Mistake`: a query changes nothing, so the server goes on. A mistake in anything else leaves `request` and the others:
what the broker holds may be half changed, and must not be used. Time that passes before a query is not part of it.

A lease of tasks is a command like any other: its own record comes first.

A receive that finds nothing changes nothing and is not recorded. If it may wait, it waits in the waiting room and is
carried out, as if it came then, when a message is visible. So do leases. Those who came first are served first. What
was leased and could not be handed over, because its client is gone, is released, as if it had never been leased.

Temporary subscriptions whose clients are not heard of are unsubscribed by the server itself (`leases`).
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
from lavant.broker.protocol import jobs
from lavant.broker.protocol.commands import Answer, Command, Query, Request
from lavant.broker.protocol.jobs import LeaseTasks, TasksLeased
from lavant.broker.protocol.queues import (
    Acknowledge,
    CancelMove,
    ChangeVisibility,
    Moved,
    MoveSome,
    MoveStarted,
    Open,
    Receive,
    Received,
    Send,
    StartMove,
)
from lavant.broker.protocol.registry import steps_of
from lavant.broker.protocol.subscriptions import (
    Advertise,
    Deliver,
    RenewSubscription,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unsubscribe,
)
from lavant.broker.queues.compatibility import RULES
from lavant.broker.queues.operations.fanout import INTEGERS
from lavant.broker.queues.timers import earliest
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.validation import check_filter
from lavant.core.errors import InternalError, InvalidValue, LavantError, StorageFull, UnknownQueue

_encode = msgspec.msgpack.Encoder().encode


class BrokerMachine:
    """Requests in, records and replies out. `position` is that of the last record which the journal holds already."""

    def __init__(
        self, broker: BrokerState, *, position: int = 0, acknowledge_early: bool = False, waiting_max: int = WAITING_MAX
    ) -> None:
        self.broker = broker
        self.queues = queues = broker.queues
        self.is_full = False
        """The journal has no room for anything new: sends and the like are refused, receives and the like go on."""
        self.is_exhausted = False
        """The journal has no room for anything at all: whatever would change something is refused."""
        self._observers: dict[type, Observer] = {}
        self._acknowledge_early = acknowledge_early
        self._position = position
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
        """Before the first request: a new epoch of leases begins, moves that were under way go on, and the clients of
        temporary subscriptions have a whole lease to come back."""
        now_ms = self._begin(now_ms)
        self._apply(Open(self.queues.epoch + 1, RULES), None, now_ms)
        # No lease is given out before that is durable: a start after a crash would begin the same epoch once more.
        self._pending.begin(self.queues.number, self._position)
        for state in self.queues.moves_running():
            self._redrive_rates.follow(state, now_ms)
        self._leases = SubscriptionLeases(now_ms)
        for subscription in self.broker.subscriptions:
            lease_ms = lease_ms_of(subscription, self.queues)
            if lease_ms:
                self._leases.hold(subscription, now_ms, lease_ms)
        return self._effects

    def request(self, client: Hashable, number: int, request: Request, raw: bytes | None, now_ms: int) -> list[Effect]:
        """A client asks. `raw` is the request in MessagePack, if it came as that."""
        now_ms = self._begin(now_ms)
        if self._long_polls:
            self._wake(now_ms)
        asked = RequestContext(client, number, raw)
        try:
            self._steps.get(type(request), self._refuse)(request, asked, now_ms)
        except LavantError as error:
            self._reply(asked, refusal(error), self._position)
        return self._effects

    def deliver(self, delivered: Deliver, publishers: list[tuple[RequestContext, Answer]], now_ms: int) -> list[Effect]:
        """Publications were matched: they go into queues, and those who published or found them are answered.

        Raises a `LavantError` if they cannot be accepted; nothing has changed then.
        """
        now_ms = self._begin(now_ms)
        if self._long_polls:
            self._wake(now_ms)
        if delivered.spread.bodies or delivered.accepted or delivered.answered or delivered.forgotten:
            self._check_room()
            number = self.queues.number
            self._apply(delivered, None, now_ms)
            if self.queues.number > number:
                self._pending.sent(self.queues.number, self._position)
        for asked, answer in publishers:
            self._reply(asked, answer, self._position)
        if self._long_polls:
            for queue in self.queues.names_of(np.frombuffer(delivered.spread.queues, INTEGERS).tolist()):
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
        """A reply could not be handed over. What it leased goes back at once, as if it had not been leased."""
        self._release(reply, self._begin(now_ms))
        return self._effects

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: to what `wakeup_ms` said, or to any other."""
        now_ms = self._begin(now_ms)
        self._wake(now_ms)
        for step in self._redrive_rates.due(now_ms):
            self._move(step, now_ms)
        for waiting in self._long_polls.expired(now_ms):
            self._leases.used(waiting.request.queue, now_ms)
            self._reply(waiting.asked, nothing_for(waiting.request), 0)
        self._expire(now_ms)
        return self._effects

    def gone(self, client: Hashable) -> None:
        """A client hung up: nothing is leased to it any more, and what was, and waits for the disk, goes back then."""
        self._long_polls.forget(client)
        self._pending.gone(client, self._position)

    def stop(self, now_ms: int) -> list[Effect]:
        """The server is about to stop: those who wait are told that nothing came."""
        self._begin(now_ms)
        for waiting in self._long_polls.everybody():
            self._reply(waiting.asked, nothing_for(waiting.request), 0)
        return self._effects

    # ── what a world wants to know ────────────────────────────────────────────────────────────────────────────────────

    def wakeup_ms(self) -> int | None:
        """When to call `tick`."""
        return earliest(
            self.queues.wakeup_ms(),
            self.queues.sweeps.next_ms(),
            self._long_polls.wakeup_ms(),
            self._redrive_rates.wakeup_ms(),
            self._leases.wakeup_ms(),
        )

    def may_wake_before(self, time_ms: int) -> bool:
        """Whether `wakeup_ms` may be before then: cheap to ask, and at times a false alarm."""
        if self.queues.may_wake_before(time_ms):
            return True
        if not (self._long_polls or self._redrive_rates or self._leases):
            return False
        own_ms = earliest(self._long_polls.wakeup_ms(), self._redrive_rates.wakeup_ms(), self._leases.wakeup_ms())
        return own_ms is not None and own_ms < time_ms

    @property
    def is_commit_awaited(self) -> bool:
        """Whether somebody waits for the disk. What nobody waits for can be committed along with something later."""
        return self._pending.is_awaited

    def waiting(self, client: Hashable) -> int:
        """How many receives of a client wait for a message."""
        return self._long_polls.count(client)

    @property
    def waiting_total(self) -> int:
        return len(self._long_polls)

    # ── requests, by kind ─────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, request: Send, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, asked.raw, now_ms)
        self._pending.sent(self.queues.number, self._position)
        self._reply(asked, answer, self._position)
        self._serve(request.queue, now_ms)

    def _receive(self, request: Receive | LeaseTasks, asked: RequestContext, now_ms: int) -> None:
        answer = self._take(request, asked, now_ms)
        self._leases.used(request.queue, now_ms)
        if answer is not None:
            self._deliver(asked, answer, request.queue)
        else:
            wait_ms = request.wait_ms
            if wait_ms is None:
                wait_ms = self.queues.config(request.queue).wait_ms
            if wait_ms:
                self._long_polls.add(asked, request, deadline_ms=now_ms + wait_ms)
            else:
                self._reply(asked, nothing_for(request), 0)
        if self._long_polls:
            for queue in self._dead_letters(request.queue):
                self._serve(queue, now_ms)

    def _acknowledge(self, request: Acknowledge, asked: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, asked.raw, now_ms)
        self._leases.used(request.queue, now_ms)
        after = 0 if self._acknowledge_early else self._position
        self._reply(asked, answer, after, is_patient=request.is_patient)
        self._serve(request.queue, now_ms)

    def _change_queue(self, request: Any, asked: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, asked.raw, now_ms)
        self._reply(asked, answer, self._position)
        self._serve(request.queue, now_ms)

    def _change_visibility(self, request: ChangeVisibility, asked: RequestContext, now_ms: int) -> None:
        self._leases.used(request.queue, now_ms)
        self._change_queue(request, asked, now_ms)

    def _grow_queue(self, request: Any, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        self._change_queue(request, asked, now_ms)

    def _subscribe(self, request: Subscribe, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, asked.raw, now_ms)
        if isinstance(answer, Subscribed) and answer.subscription.is_temporary:
            self._leases.hold(answer.subscription, now_ms)
        self._reply(asked, self._leases.with_ends(answer, now_ms), self._position)

    def _unsubscribe(self, request: Unsubscribe, asked: RequestContext, now_ms: int) -> None:
        state = self.broker.subscriptions.find(request.namespace, request.name)
        self._unadvertise(request, asked, now_ms)
        self._leases.forget(state.number)

    def _advertise(self, request: Advertise, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        check_filter(request.filter)  # the engine checks the filters of subscriptions
        self._reply(asked, self._apply(request, asked.raw, now_ms), self._position)

    def _unadvertise(self, request: Unsubscribe | Unadvertise, asked: RequestContext, now_ms: int) -> None:
        self._reply(asked, self._apply(request, asked.raw, now_ms), self._position)
        self._serve_orphans(now_ms)

    def _renew_subscription(self, request: RenewSubscription, asked: RequestContext, now_ms: int) -> None:
        state = self.broker.subscriptions.find(request.namespace, request.name)
        if not state.is_temporary:
            raise InvalidValue(f"subscription {state.name!r} has no lease: it stays until somebody unsubscribes it")
        self._leases.hold(state, now_ms)
        self._reply(asked, self._leases.with_ends(Subscribed(state, is_new=False), now_ms), self._position)

    def _grow_jobs(self, request: jobs.DefineJobs | jobs.SubmitJob, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        self._change_jobs(request, asked, now_ms)

    def _change_jobs(self, request: Any, asked: RequestContext, now_ms: int) -> None:
        """Something happened to a job, and there may be tasks that follow."""
        self._reply(asked, self._apply(request, asked.raw, now_ms), self._position)
        for queue in self.queues.touched():
            self._serve(queue, now_ms)

    def _start_move(self, request: StartMove, asked: RequestContext, now_ms: int) -> None:
        self._check_room()
        answer = self._apply(request, asked.raw, now_ms)
        assert isinstance(answer, MoveStarted)
        for state in self.queues.moves_running():
            if state.task == answer.task:
                self._redrive_rates.follow(state, now_ms)
        self._reply(asked, answer, self._position)

    def _cancel_move(self, request: CancelMove, asked: RequestContext, now_ms: int) -> None:
        answer = self._apply(request, asked.raw, now_ms)
        assert isinstance(answer, Moved)
        self._redrive_rates.follow(answer.state, now_ms)
        self._reply(asked, answer, self._position)

    def _query(self, request: Query, asked: RequestContext, now_ms: int) -> None:
        """What happens by itself until now may change something, so a mistake in that is none of the query's."""
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
        self._reply(asked, answer, self._position)

    def _refuse(self, request: Request, asked: RequestContext, now_ms: int) -> None:
        raise InvalidValue(f"{type(request).__name__} is for the server itself, not for its clients")

    # ── those who wait ────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake(self, now_ms: int) -> None:
        """Let time pass first, so that who waits comes before who asks only now."""
        for queue in self.queues.advance(now_ms):
            self._serve(queue, now_ms)

    def _serve(self, queue: str, now_ms: int) -> None:
        """Something happened to a queue: those who wait for it may have what is visible now."""
        if not self._long_polls:
            return
        queues = [queue]
        while queues:
            name = queues.pop()
            is_served = True
            while is_served and (waiting := self._long_polls.first(name)) is not None:
                position = self._position
                is_served = self._serve_one(waiting, now_ms)
                if self._position > position:  # also if all that was there went to the dead letters
                    queues += self._dead_letters(name)

    def _serve_orphans(self, now_ms: int) -> None:
        """Those who wait for a queue that is gone are told so."""
        for queue in self._long_polls.queues():
            if not self.queues.exists(queue):
                self._serve(queue, now_ms)

    def _serve_one(self, waiting: LongPoll, now_ms: int) -> bool:
        """False if nothing is visible to it."""
        try:
            if not self.queues.visible(waiting.request.queue, now_ms):
                return False
            answer = self._take(waiting.request, waiting.asked, now_ms)
        except LavantError as error:  # the queue was deleted, say
            self._long_polls.remove(waiting)
            self._reply(waiting.asked, refusal(error), self._position)
            return True
        if answer is None:
            return False
        self._long_polls.remove(waiting)
        self._leases.used(waiting.request.queue, now_ms)
        self._deliver(waiting.asked, answer, waiting.request.queue)
        return True

    def _dead_letters(self, queue: str) -> list[str]:
        """Where a receive from a queue may have moved messages, for which somebody may be waiting."""
        try:
            dead_letters = self.queues.config(queue).dead_letters
        except UnknownQueue:
            return []
        return [] if dead_letters is None else [dead_letters]

    # ── what they have in common ──────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, now_ms: int) -> int:
        """A stimulus came. Inside, time never goes back, and the journal must say which time it was inside."""
        self._effects = []
        latest_ms = self.queues.now_ms
        return now_ms if now_ms > latest_ms else latest_ms

    def _apply(self, command: Command, raw: bytes | None, now_ms: int) -> Answer:
        if self.is_exhausted:
            raise StorageFull("the disk is full, and what was kept in reserve is used up; make room on the disk")
        answer: Answer = self.broker.handle(command, now_ms)
        observer = self._observers.get(type(command))
        if observer is not None:
            observer(command, answer)
        if self.broker.changed:
            self._position += 1
            data = now_ms.to_bytes(TIME_BYTES, "big") + (_encode(command) if raw is None else raw)
            self._effects.append(Record(self._position, data))
        return answer

    def _take(self, request: Receive | LeaseTasks, asked: RequestContext, now_ms: int) -> Received | TasksLeased | None:
        """None if there is nothing. A receive that comes back empty, and yet changed something, has moved dead letters;
        more may be there."""
        while True:
            answer = self._apply(request, asked.raw, now_ms)
            if (isinstance(answer, Received) and answer.deliveries) or (
                isinstance(answer, TasksLeased) and answer.tasks
            ):
                return answer
            if not self.queues.changed:
                return None

    def _deliver(self, asked: RequestContext, answer: Received | TasksLeased, queue: str) -> None:
        reply = Reply(asked.client, asked.number, answer, queue)
        if isinstance(answer, TasksLeased):
            self._pending.hold_lease(reply, self._position)
            return
        newest = max([delivery.receipt.number for delivery in answer.deliveries])
        if not self._pending.holds_receive(reply, newest, self._position):
            self._effects.append(reply)

    def _release(self, reply: Reply, now_ms: int) -> None:
        """If it cannot be, because the queue is gone, say, the lease runs out by itself."""
        command = release_of(reply)
        if command is not None:
            with suppress(LavantError):
                self._apply(command, None, now_ms)
                self._serve(reply.queue, now_ms)

    def _move(self, step: MoveSome, now_ms: int) -> None:
        if self.is_full:
            return
        try:
            answer = self._apply(step, None, now_ms)
        except LavantError:  # its queue was deleted, and the move with it
            self._redrive_rates.forget(step.task)
            return
        assert isinstance(answer, Moved)
        self._redrive_rates.follow(answer.state, now_ms)
        destination = answer.state.destination
        for queue in self._long_polls.queues() if destination is None else [destination]:
            self._serve(queue, now_ms)

    def _expire(self, now_ms: int) -> None:
        """Unsubscribe those whose clients were not heard of. Of some the queue was deleted, and they with it."""
        for state in [each for each in self._leases.due(now_ms) if each in self.broker.subscriptions]:
            if state.owns_queue and self._long_polls.first(state.queue) is not None:  # its client is there, and waits
                self._leases.hold(state, now_ms, lease_ms_of(state, self.queues))
                continue
            try:
                self._apply(Unsubscribe(state.name, state.namespace), None, now_ms)
            except StorageFull:  # even what makes room needs some: later
                self._leases.hold(state, now_ms, lease_ms_of(state, self.queues))

    def _check_room(self) -> None:
        if self.is_full:
            raise StorageFull(
                "the disk of the server is full: nothing new is accepted until there is room; receive and acknowledge "
                "what is there, and make room on the disk"
            )

    def _reply(self, asked: RequestContext, answer: Answer, after: int, *, is_patient: bool = False) -> None:
        """Now, or when everything up to a position is durable. `after` never goes back, except to 0."""
        reply = Reply(asked.client, asked.number, answer)
        if after <= self._pending.durable:
            self._effects.append(reply)
        else:
            self._pending.hold(reply, after, is_patient=is_patient)

    _STEPS: ClassVar[dict[type, str]] = steps_of(vars())
