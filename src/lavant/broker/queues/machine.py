"""The hub: all durable queues of a server as one deterministic machine.

    request, now_ms ──► Queues.handle ──► answer
                             ▲
    wakeup_ms ◄──────────────┴── time ──► visible again, expired

The paper is Li, Cui and Ma, "Modeling Message Queueing Services with Reliability Guarantee in Cloud Computing
Environment Using Colored Petri Nets". Its Section 3 is what happens to a message: *send* puts it in, *receive* shows it
to one consumer and hides it from the others for the visibility timeout, *acknowledge* takes it out, and without that it
is visible again. So every message is delivered at least once. Replication and sampling of server nodes, which the paper
models as well, are not in here.

**Replay.** What the hub is depends only on the commands that it has carried out and their times: carried out once
more, in a fresh hub, at the same times, they give the same state and the same answers. So a journal of them is all that
is needed, if it keeps these rules:

* Record a command with `now_ms` of the hub *after* it: that is the time at which it took effect. Inside, time
  never goes back, whatever the caller's clock does.
* What raises an error, and a query, has changed nothing but the time, and need not be recorded. The same holds for
  any command after which `changed` is false, an empty receive above all. An empty receive after which `changed`
  is true has found only messages that were received too often, and has moved them to the dead-letter queue.
* Replay with `is_replay` and `UNLIMITED`: what was accepted once is not refused later, whatever the limits are by then.
* A change of what a command does is a new version of the rules: `Open` says which one holds from there on, and a replay
  follows those of each record's time. `lavant.broker.queues.compatibility` has the list, and how to add to it.

**Check, then apply.** A command is checked as a whole before it changes anything; `planning` says how. `handle` is
`plan`, which may raise a `LavantError`, and then the plan, which may not.

**Time.** Callers whose clock may be set back should go on from `now_ms`: leases given at a time that is far ahead of
the clock would not end until the clock is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from lavant.broker.protocol import queues as commands
from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, QueueConfig, namespace_of
from lavant.broker.protocol.queues import Answer, Request
from lavant.broker.queues import snapshot
from lavant.broker.queues.accounting.counters import EPOCH_MAX, QueueCounters
from lavant.broker.queues.accounting.memory import MESSAGE, memory_full
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.queues.compatibility import PURGE_FORGETS_NAMES, check_rules
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.operations.fanout import carry_out, check_shares, memory_of_shares, shares_of
from lavant.broker.queues.operations.receive import peeked, receive, room_for
from lavant.broker.queues.operations.redrive import STEP_MAX, Redrives
from lavant.broker.queues.operations.send import send
from lavant.broker.queues.operations.settle import acknowledge, change_visibility, release
from lavant.broker.queues.plan import Plan, half_applied
from lavant.broker.queues.queue import QueueState, memory_of, size_of, tags_memory
from lavant.broker.queues.timers import QueueTimers, Sweeps
from lavant.broker.queues.validation import check_batch, check_part_of_name, check_range, check_receive, check_tags
from lavant.core.errors import InvalidValue, LavantError

LISTED_MAX = 1000
NEVER = 1 << 62
_DONE = commands.Done()


class Queues:
    """All queues of a server.

    >>> from lavant.broker.protocol.queues import *
    >>> from lavant.broker.protocol.queue_config import QueueConfig
    >>> queues = Queues()
    >>> queues.handle(CreateQueue("orders", QueueConfig(visibility_ms=30_000)), now_ms=0)
    QueueCreated(is_new=True)
    >>> queues.handle(Send("orders", [SendEntry(b"tea"), SendEntry(b"rice")]), now_ms=1)
    Sent(entries=[SentEntry(number=1), SentEntry(number=2)])
    >>> [delivery] = queues.handle(Receive("orders"), now_ms=2).deliveries
    >>> delivery.body, queues.visible("orders", 2), queues.wakeup_ms()
    (b'tea', True, 30002)
    >>> queues.handle(Acknowledge("orders", [delivery.receipt]), now_ms=3)
    Acknowledged(refused={})
    """

    def __init__(self, limits: QueueLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.now_ms = 0
        """The latest time seen."""
        self.changed = False
        """Whether the last `handle` did something that a replay must do too."""
        self.is_replay = False
        """Commands were accepted before: they are checked only for what they need to be carried out."""
        self._reserved: set[str] = set()
        """Queues that only whoever extends this hub may touch."""
        self._counters = QueueCounters()
        self.usages = self._counters.usages
        """What each namespace has in its queues, and may have."""
        self._directory = Directory(self._counters)
        self._moves = Redrives(self._directory, self._counters)
        self._wakes = QueueTimers()
        self.sweeps = Sweeps()
        self.sweeps.add(self._directory.forget_names, lambda: self._counters.names)

    def handle(self, request: Request, now_ms: int) -> Answer:
        """Carry out a command or answer a query. Raises a `LavantError` if it can't be done, and has not begun then."""
        self.changed = False
        if now_ms > self.now_ms:
            self.advance(now_ms)
        if type(request) in self._ANSWERS:
            return self.answer(request)  # type: ignore[no-any-return]
        plan = self.plan(request)
        try:
            answer: Answer = plan()
        except LavantError as error:
            raise half_applied(error) from error
        return answer

    def plan(self, request: Any) -> Plan:
        """Check a command, and return what is to be applied before anything else happens to the hub."""
        if self._reserved:
            self._check_reserved(request)
        planner = self._PLANNERS.get(type(request))
        if planner is None:
            raise InvalidValue(f"{type(request).__name__} is no request; see lavant.broker.protocol.queues")
        return planner(self, request)

    def answer(self, request: Any) -> Any:
        """To a query, which changes nothing."""
        return self._ANSWERS[type(request)](self, request)

    def plan_queues(self, creates: Sequence[commands.CreateQueue]) -> Plan:
        """Several queues that are created together, or none of them."""
        if self._reserved:
            for each in creates:
                self._check_reserved(each)
        new = self._directory.check_new(creates, self.limits.queues_max, is_replay=self.is_replay)
        self.check_memory(sum(memory_of(each.queue, each.tags) for each in new))

        def apply() -> Answer:
            for each in new:
                self._directory.create(each.queue, each.config, each.tags, self.now_ms)
            self.changed = bool(new)
            return commands.QueueCreated(is_new=self.changed)

        return apply

    def advance(self, now_ms: int) -> list[str]:
        """Let time pass: whatever happens by itself until now, happens. A time that is over changes nothing.

        Returns the queues to which something may have happened.
        """
        if now_ms <= self.now_ms:
            return []
        self.now_ms = now_ms
        self.sweeps.advance(now_ms)
        return self._wakes.advance(now_ms)

    def wakeup_ms(self) -> int | None:
        """When something becomes visible or expires by itself: always later than `now_ms`. Call `advance` then."""
        return self._wakes.next_ms()

    def may_wake_before(self, time_ms: int) -> bool:
        """Whether `wakeup_ms` may be before then: cheap to ask, and at times a false alarm."""
        return self._wakes.may_be_before(time_ms)

    def visible(self, queue: str, now_ms: int) -> bool:
        """Whether a receive would find something, and may have it."""
        self.advance(now_ms)
        found = self._directory[queue]
        return found.in_flight < found.config.in_flight_max and found.order.first() is not None

    def config(self, queue: str) -> QueueConfig:
        """The settings of a queue."""
        return self._directory[queue].config

    def serial(self, queue: str) -> int:
        """The number of a queue."""
        return self._directory[queue].serial

    def exists(self, queue: str) -> bool:
        return self._directory.find(queue) is not None

    def names_of(self, serials: Iterable[int]) -> list[str]:
        """Of the queues with these numbers that are still there."""
        return [queue.name for queue in map(self._directory.numbered, serials) if queue is not None]

    def all(self) -> list[QueueState]:
        """In the order of their creation; to be read only."""
        return list(self._directory)

    @property
    def number(self) -> int:
        """The last that was given to a message."""
        return self._counters.number

    @property
    def epoch(self) -> int:
        """That of the last `Open`."""
        return self._counters.epoch

    @property
    def bytes_held(self) -> int:
        """Of all bodies and attributes in all queues."""
        return self._counters.bytes

    @property
    def counters(self) -> QueueCounters:
        """For whoever extends this hub: what they hold is counted here too."""
        return self._counters

    @property
    def memory_held(self) -> int:
        """Bytes that all that is held takes, as it is counted for the limit."""
        return self._counters.memory

    def check_memory(self, size_bytes: int, *, reserve: int = 0) -> None:
        """Raise if what comes in would be over the limit of memory, and a reserve. What takes nothing always may."""
        if size_bytes > 0 and not self.is_replay and self.memory_held + size_bytes > self.limits.memory_max + reserve:
            raise memory_full(self.memory_held, size_bytes, self.limits.memory_max)

    def moves_running(self) -> list[commands.MoveState]:
        """Those that wait for their next `MoveSome`."""
        return self._moves.running()

    def snapshot(self) -> Iterator[bytes]:
        """All that `restore` needs, in chunks of about a megabyte. Nothing may be changed until the last is taken."""
        return snapshot.encode(self._directory, self._moves, self._counters, self.now_ms)

    @classmethod
    def restore(cls, chunks: Iterable[bytes], limits: QueueLimits = DEFAULT_LIMITS) -> Queues:
        """The hub of which the chunks are a snapshot."""
        hub = cls(limits)
        hub.now_ms = snapshot.decode(chunks, hub._directory, hub._moves, hub._counters)
        for queue in hub._directory:
            hub._wakes.schedule(queue)
        return hub

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, request: commands.Open) -> Plan:
        check_range("epoch", request.epoch, self.epoch + 1, EPOCH_MAX)
        check_rules(request.rules)

        def apply() -> Answer:
            self._counters.open(request.epoch, request.rules)
            return self._done()

        return apply

    def _check_reserved(self, request: Any) -> None:
        """Raise if it is for a queue that such requests are not for."""

    def _create(self, request: commands.CreateQueue) -> Plan:
        return self.plan_queues([request])

    def _configure(self, request: commands.ConfigureQueue) -> Plan:
        queue = self._directory.check_configure(request.queue, request.config, is_replay=self.is_replay)

        def apply() -> Answer:
            queue.config = request.config
            queue.changed_ms = self.now_ms
            queue.advance(self.now_ms)  # a shorter retention may be over for some
            self._changed(queue)
            return self._done()

        return apply

    def _tag(self, request: commands.TagQueue) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_tags(request.tags)
        self.check_memory(tags_memory(request.tags) - tags_memory(queue.tags))

        def apply() -> Answer:
            self._directory.tag(queue, request.tags)
            return self._done()

        return apply

    def _delete(self, request: commands.DeleteQueue) -> Plan:
        queue = self._directory[request.queue]

        def apply() -> Answer:
            self._directory.delete(queue)
            self._wakes.forget(queue)
            self._moves.forget(queue.name)
            return self._done()

        return apply

    def _purge(self, request: commands.PurgeQueue) -> Plan:
        queue = self._directory[request.queue]

        def apply() -> Answer:
            queue.purge()
            if self._counters.rules >= PURGE_FORGETS_NAMES:
                queue.deduplication.clear()
            return self._done()

        return apply

    def _describe(self, request: commands.DescribeQueue) -> Answer:
        queue = self._directory[request.queue]
        queue.deduplication.forget(self.now_ms)
        return commands.Described(queue.config, queue.tags, queue.created_ms, queue.changed_ms, queue.figures())

    def _list(self, request: commands.ListQueues) -> Answer:
        check_range("count", request.count, 1, LISTED_MAX)
        check_part_of_name("prefix", request.prefix)
        check_part_of_name("after", request.after)
        return commands.Listed(
            self._directory.names(request.prefix, request.after, request.count, is_outside=request.is_outside)
        )

    def _sources(self, request: commands.ListSources) -> Answer:
        return commands.Listed(self._directory.sources(request.queue))

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, request: commands.Send) -> Plan:
        queue, entries = self._directory[request.queue], request.entries
        sizes = [len(entry.body) + len(entry.attributes) for entry in entries]
        if not self.is_replay:
            bytes_sent = sum(sizes)
            check_batch(len(entries), bytes_sent)
            self._check_room(queue, len(entries), bytes_sent)

        def apply() -> Answer:
            answers = send(queue, entries, sizes, self.now_ms, self._counters)
            if any(type(answer) is commands.SentEntry for answer in answers):
                self._changed(queue, self._next_of_sent(queue))
            return commands.Sent(answers)

        return apply

    def plan_spread(self, request: commands.FanOut, *, is_admitted: bool = False) -> Plan:
        """Quotas do not count for what was accepted before, when it was published."""
        shares = shares_of(request, self._directory)
        check_shares(shares, [len(body) for body in request.bodies])
        self.check_memory(memory_of_shares(shares, request.bodies))
        if not self.is_replay and not is_admitted:
            self.usages.check_all_bytes((share.queue.name, share.size_bytes) for share in shares)

        def apply() -> Answer:
            carry_out(shares, request.bodies, self.now_ms, self._counters)
            for share in shares:
                self._changed(share.queue, self._next_of_sent(share.queue))
            return _DONE

        return apply

    def _receive(self, request: commands.Receive) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_receive(request)
        count = min(request.count, room_for(queue))
        visibility_ms = queue.config.visibility_ms if request.visibility_ms is None else request.visibility_ms

        def apply() -> Answer:
            dead_letters = self._directory.dead_letters_of(queue)
            deliveries, buried = receive(queue, count, visibility_ms, self.now_ms, dead_letters)
            if deliveries or buried:
                self._changed(queue, self.now_ms + visibility_ms)
            if buried and dead_letters is not None:
                self._changed(dead_letters)
            return commands.Received(deliveries)

        return apply

    def _acknowledge(self, request: commands.Acknowledge) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_batch(len(request.receipts))

        def apply() -> Answer:
            depth = len(queue.messages)
            refused = acknowledge(queue, request.receipts, self._counters.lease)
            if len(queue.messages) < depth:
                self._changed(queue, NEVER)
            return commands.Acknowledged(refused)

        return apply

    def _change_visibility(self, request: commands.ChangeVisibility) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_batch(len(request.changes))

        def apply() -> Answer:
            refused = change_visibility(queue, request.changes, self.now_ms, self._counters.lease)
            if len(refused) < len(request.changes):
                self._changed(queue)
            return commands.VisibilityChanged(refused)

        return apply

    def _release(self, request: commands.Release) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_batch(len(request.receipts))

        def apply() -> Answer:
            refused = release(queue, request.receipts, self._counters.lease)
            if len(refused) < len(request.receipts):
                self._changed(queue)
            return commands.VisibilityChanged(refused)

        return apply

    def _peek(self, request: commands.Peek) -> Answer:
        queue = self._directory[request.queue]
        check_range("count", request.count, 1, BATCH_ENTRIES_MAX)
        shown: list[commands.PeekedMessage] = []
        bytes_left = BATCH_BYTES_MAX
        for message in queue.above(request.after, request.count):
            bytes_left -= size_of(message)
            if bytes_left < 0 and shown:
                break
            shown.append(peeked(message))
        return commands.Peeked(shown)

    # ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_move(self, request: commands.StartMove) -> Plan:
        source = self._moves.check_start(request, self.limits.moves_max, is_replay=self.is_replay)

        def apply() -> Answer:
            self.changed = True
            return commands.MoveStarted(self._moves.start(request, source, self.now_ms).task)

        return apply

    def _move(self, request: commands.MoveSome) -> Plan:
        before = self._moves.find(request.task)
        if not self.is_replay:
            check_range("count", request.count, 1, STEP_MAX)

        def apply() -> Answer:
            state, queues = self._moves.step(before, request.count, self.now_ms)
            for queue in queues:
                self._changed(queue)
            self.changed = state is not before
            return commands.Moved(state)

        return apply

    def _cancel_move(self, request: commands.CancelMove) -> Plan:
        before = self._moves.check_cancel(request)

        def apply() -> Answer:
            state = self._moves.cancel(before)
            self.changed = state is not before
            return commands.Moved(state)

        return apply

    def _list_moves(self, request: commands.ListMoves) -> Answer:
        return commands.Moves(self._moves.of(self._directory[request.source].name))

    # ── what they have in common ──────────────────────────────────────────────────────────────────────────────────────

    def _done(self) -> Answer:
        self.changed = True
        return _DONE

    def _changed(self, queue: QueueState, next_ms: int = 0) -> None:
        """After every change of a queue's messages. Of what is new, nothing happens by itself before `next_ms`."""
        self.changed = True
        queue.tidy()
        if queue.wake_ms is None or next_ms < queue.wake_ms:
            self._wakes.schedule(queue)

    def _next_of_sent(self, queue: QueueState) -> int:
        """Before this, nothing happens by itself to messages that were sent just now; unless some are delayed."""
        return 0 if queue.delayed else self.now_ms + queue.config.retention_ms

    def _check_room(self, queue: QueueState, entries: int, bytes_sent: int) -> None:
        self.check_memory(entries * MESSAGE + bytes_sent)
        self.usages.check_bytes(namespace_of(queue.name), bytes_sent)
        queue.deduplication.check_room(queue.name, entries, self.limits.deduplication_names_max, self.now_ms)

    _PLANNERS: ClassVar[dict[type, Callable[[Any, Any], Plan]]] = {
        commands.Open: _open,
        commands.CreateQueue: _create,
        commands.ConfigureQueue: _configure,
        commands.TagQueue: _tag,
        commands.DeleteQueue: _delete,
        commands.PurgeQueue: _purge,
        commands.Send: _send,
        commands.FanOut: plan_spread,
        commands.Receive: _receive,
        commands.Acknowledge: _acknowledge,
        commands.ChangeVisibility: _change_visibility,
        commands.Release: _release,
        commands.StartMove: _start_move,
        commands.MoveSome: _move,
        commands.CancelMove: _cancel_move,
    }
    _ANSWERS: ClassVar[dict[type, Callable[[Any, Any], Any]]] = {
        commands.DescribeQueue: _describe,
        commands.ListQueues: _list,
        commands.ListSources: _sources,
        commands.Peek: _peek,
        commands.ListMoves: _list_moves,
    }
