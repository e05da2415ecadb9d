"""The state machine of all durable queues of a server.

    request, now_ms ──► Queues.handle ──► answer
                             ▲
    wakeup_ms ◄──────────────┴── time ──► visible again, expired

After Li, Cui and Ma, "Modeling Message Queueing Services with Reliability Guarantee in Cloud Computing Environment
Using Colored Petri Nets". Section 3 describes the life of a message: *send* stores it, *receive* delivers it to one
consumer and hides it from the others for the visibility timeout, *acknowledge* deletes it, and without that it becomes
visible again. So every message is delivered at least once. Replication and sampling of server nodes, which the paper
also models, are not implemented here.

**Replay.** The state depends only on the commands that were handled and their times: the same commands at the same
times give a fresh machine the same state and the same answers. So a journal of commands is enough, if it keeps these
rules:

* Record a command with the machine's `now_ms` *after* it: that is when it took effect. Inside, time never goes back,
  whatever the caller's clock does.
* A query, or a command that raised an error, changed nothing but the time and need not be recorded. The same holds for
  any command after which `changed` is false, above all an empty receive. An empty receive after which `changed` is true
  found only messages that were received too often, and moved them to the dead-letter queue.
* Replay with `is_replay` and `UNLIMITED`: a command that was accepted once is never refused, whatever the limits.
* A change of what a command does is a new version of the rules: `Open` says which version holds from there on, and
  replay follows those of each record's time. `lavant.broker.queues.compatibility` lists them and says how to add one.

**Check, then apply.** A command is checked completely before it changes anything; see `lavant.broker.queues.plan`.
`handle` calls `plan`, which may raise a `LavantError`, and then the plan, which may not.

**Time.** A caller whose clock may be set back should continue from `now_ms`: leases given far ahead of the clock would
not end until the clock gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from lavant.broker.protocol import queues as commands
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, QueueConfig, namespace_of
from lavant.broker.protocol.registry import COMMANDS, QUERIES, QUEUES, handlers_of
from lavant.broker.queues import snapshot
from lavant.broker.queues.accounting.counters import EPOCH_MAX, QueueCounters
from lavant.broker.queues.accounting.memory import MESSAGE, memory_full
from lavant.broker.queues.accounting.quotas import DEFAULT_LIMITS, QueueLimits
from lavant.broker.queues.compatibility import PURGE_FORGETS_NAMES, check_rules
from lavant.broker.queues.directory import Directory
from lavant.broker.queues.operations.fanout import check_shares, fan_out, memory_of_shares, shares_of
from lavant.broker.queues.operations.receive import peeked, receive, room_for
from lavant.broker.queues.operations.redrive import STEP_MAX, Redrives
from lavant.broker.queues.operations.send import send
from lavant.broker.queues.operations.settle import acknowledge, change_visibility, release
from lavant.broker.queues.operations.transfer import QueueTransfers
from lavant.broker.queues.plan import Plan, half_applied
from lavant.broker.queues.queue import QueueState, memory_of, size_of, tags_memory
from lavant.broker.queues.timers import QueueTimers, Sweeps
from lavant.broker.queues.validation import check_batch, check_part_of_name, check_range, check_receive, check_tags
from lavant.core.errors import InvalidValue, LavantError

LISTED_MAX = 1000
NEVER = 1 << 62
REASONS_SHARE = 8
"""Reasons for failures may exceed the memory limit by an eighth, so that consumers can give them when it is reached."""
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
        """Whether the last `handle` changed something that a replay must repeat."""
        self.is_replay = False
        """Commands were accepted before: check only what is needed to apply them."""
        self._reserved: set[str] = set()
        """Queues that only a subclass may touch."""
        self._counters = QueueCounters()
        self.usages = self._counters.usages
        """Usage and quota of queues by namespace."""
        self._directory = Directory(self._counters)
        self._moves = Redrives(self._directory, self._counters)
        self.transfers = QueueTransfers(self._directory, self._counters, self._changed)
        self._timers = QueueTimers()
        self.sweeps = Sweeps()
        self.sweeps.add(self._directory.forget_names, lambda: self._counters.names)

    def handle(self, request: Request, now_ms: int) -> Answer:
        """Handle a command or query. Raises a `LavantError` if it is refused, and then nothing has changed."""
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
        """Check a command and return its plan, to be applied before anything else happens."""
        if self._reserved:
            self._check_reserved(request)
        if self.transfers.relocations:
            self.transfers.check(request, self.now_ms)
        planner = self._PLANNERS.get(type(request))
        if planner is None:
            raise InvalidValue(f"{type(request).__name__} is no request; see lavant.broker.protocol.queues")
        return planner(self, request)

    def answer(self, request: Any) -> Any:
        """Answer a query, which changes nothing."""
        if self.transfers.relocations:
            self.transfers.check(request, self.now_ms)
        return self._ANSWERS[type(request)](self, request)

    def plan_queues(self, creates: Sequence[commands.CreateQueue]) -> Plan:
        """Create several queues together, or none of them."""
        if self._reserved:
            for each in creates:
                self._check_reserved(each)
        for each in creates if self.transfers.relocations else ():
            self.transfers.check(each, self.now_ms)
        new = self._directory.check_new(creates, self.limits.queues_max, is_replay=self.is_replay)
        self.check_memory(sum(memory_of(each.queue, each.tags) for each in new))

        def apply() -> Answer:
            for each in new:
                self._directory.create(each.queue, each.config, each.tags, self.now_ms)
            self.changed = bool(new)
            return commands.QueueCreated(is_new=self.changed)

        return apply

    def advance(self, now_ms: int) -> list[str]:
        """Apply everything that is due until `now_ms`; a past time changes nothing.

        Returns the queues that may have changed.
        """
        if now_ms <= self.now_ms:
            return []
        self.now_ms = now_ms
        self.sweeps.advance(now_ms)
        return self._timers.advance(now_ms)

    def wakeup_ms(self) -> int | None:
        """When something next becomes visible or expires, always later than `now_ms`. Call `advance` then."""
        return self._timers.next_ms()

    def may_wake_before(self, time_ms: int) -> bool:
        """Whether `wakeup_ms` may be before then; cheap, with false positives."""
        return self._timers.may_be_before(time_ms)

    def visible(self, queue: str, now_ms: int) -> bool:
        """Whether a receive would return a message."""
        self.advance(now_ms)
        if self.transfers.relocations:
            self.transfers.check(commands.Receive(queue), self.now_ms)
        found = self._directory[queue]
        is_there = found.order.first() is not None and found.in_flight < found.config.in_flight_max
        return is_there and not self.transfers.is_arriving(queue)

    def config(self, queue: str) -> QueueConfig:
        return self._directory[queue].config

    def serial(self, queue: str) -> int:
        return self._directory[queue].serial

    def exists(self, queue: str) -> bool:
        return self._directory.find(queue) is not None

    def names_of(self, serials: Iterable[int]) -> list[str]:
        """Names of the queues with these numbers that still exist."""
        return [queue.name for queue in map(self._directory.numbered, serials) if queue is not None]

    def all(self) -> list[QueueState]:
        """In the order of creation; read only."""
        return list(self._directory)

    @property
    def number(self) -> int:
        """The last message number."""
        return self._counters.number

    @property
    def epoch(self) -> int:
        """The epoch of the last `Open`."""
        return self._counters.epoch

    @property
    def bytes_held(self) -> int:
        """Bodies and attributes in all queues."""
        return self._counters.bytes

    @property
    def counters(self) -> QueueCounters:
        """For jobs and the federation, whose memory is counted here too, and which follow the same rules."""
        return self._counters

    @property
    def memory_held(self) -> int:
        """Bytes of memory in use, as counted for the limit."""
        return self._counters.memory

    def check_memory(self, size_bytes: int, *, reserve: int = 0) -> None:
        """Raise if so many more bytes would exceed the memory limit plus a reserve. Zero is always allowed."""
        if size_bytes > 0 and not self.is_replay and self.memory_held + size_bytes > self.limits.memory_max + reserve:
            raise memory_full(self.memory_held, size_bytes, self.limits.memory_max)

    def moves_running(self) -> list[commands.MoveState]:
        """Moves that wait for their next `MoveSome`."""
        return self._moves.running()

    def snapshot(self) -> Iterator[bytes]:
        """Everything that `restore` needs, in chunks of about a megabyte. Change nothing until the last is taken."""
        return snapshot.encode(self._directory, self._moves, self._counters, self.now_ms)

    @classmethod
    def restore(cls, chunks: Iterable[bytes], limits: QueueLimits = DEFAULT_LIMITS) -> Queues:
        """Restore a machine from the chunks of its snapshot."""
        queues = cls(limits)
        queues.now_ms = snapshot.decode(chunks, queues._directory, queues._moves, queues._counters)
        for queue in queues._directory:
            queues._timers.schedule(queue)
        return queues

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, request: commands.Open) -> Plan:
        check_range("epoch", request.epoch, self.epoch + 1, EPOCH_MAX)
        check_rules(request.rules)

        def apply() -> Answer:
            self._counters.open(request.epoch, request.rules)
            return self._done()

        return apply

    def _check_reserved(self, request: Any) -> None:
        """Raise if the request is for a reserved queue."""

    def _create_queue(self, request: commands.CreateQueue) -> Plan:
        return self.plan_queues([request])

    def _configure_queue(self, request: commands.ConfigureQueue) -> Plan:
        queue = self._directory.check_configure(request.queue, request.config, is_replay=self.is_replay)

        def apply() -> Answer:
            queue.config = request.config
            queue.changed_ms = self.now_ms
            queue.advance(self.now_ms)  # a shorter retention may be over for some
            self._changed(queue)
            return self._done()

        return apply

    def _tag_queue(self, request: commands.TagQueue) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_tags(request.tags)
        self.check_memory(tags_memory(request.tags) - tags_memory(queue.tags))

        def apply() -> Answer:
            self._directory.tag(queue, request.tags)
            return self._done()

        return apply

    def _delete_queue(self, request: commands.DeleteQueue) -> Plan:
        queue = self._directory[request.queue]

        def apply() -> Answer:
            self._directory.delete(queue)
            self._timers.forget(queue)
            self._moves.forget(queue.name)
            return self._done()

        return apply

    def plan_delete(self, queue: str) -> Plan:
        """Delete a queue, also one that moves."""
        return self._delete_queue(commands.DeleteQueue(queue))

    def _purge_queue(self, request: commands.PurgeQueue) -> Plan:
        queue = self._directory[request.queue]

        def apply() -> Answer:
            queue.purge()
            if self._counters.rules >= PURGE_FORGETS_NAMES:
                queue.deduplication.clear()
            return self._done()

        return apply

    def _describe_queue(self, request: commands.DescribeQueue) -> Answer:
        queue = self._directory[request.queue]
        queue.deduplication.forget(self.now_ms)
        return commands.Described(queue.config, queue.tags, queue.created_ms, queue.changed_ms, queue.figures())

    def _list_queues(self, request: commands.ListQueues) -> Answer:
        check_range("count", request.count, 1, LISTED_MAX)
        check_part_of_name("prefix", request.prefix)
        check_part_of_name("after", request.after)
        return commands.Listed(
            self._directory.names(request.prefix, request.after, request.count, is_outside=request.is_outside)
        )

    def _list_sources(self, request: commands.ListSources) -> Answer:
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

    def _fan_out(self, request: commands.FanOut) -> Plan:
        return self.plan_fan_out(request)

    def plan_fan_out(self, request: commands.FanOut, *, is_admitted: bool = False) -> Plan:
        """A fan-out. Quotas do not apply if it `is_admitted`: accepted before, when it was published."""
        shares = shares_of(request, self._directory)
        check_shares(shares, [len(body) for body in request.bodies])
        self.check_memory(memory_of_shares(shares, request.bodies))
        if not self.is_replay and not is_admitted:
            self.usages.check_all_bytes((share.queue.name, share.size_bytes) for share in shares)

        def apply() -> Answer:
            fan_out(shares, request.bodies, self.now_ms, self._counters)
            for share in shares:
                self._changed(share.queue, self._next_of_sent(share.queue))
            return _DONE

        return apply

    def _receive(self, request: commands.Receive) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_receive(request)
        count = 0 if self.transfers.is_arriving(request.queue) else min(request.count, room_for(queue))
        visibility_ms = queue.config.visibility_ms if request.visibility_ms is None else request.visibility_ms

        def apply() -> Answer:
            dead_letters = self._directory.dead_letters_of(queue)
            deliveries, dead_lettered = receive(queue, count, visibility_ms, self.now_ms, dead_letters)
            if deliveries or dead_lettered:
                self._changed(queue, self.now_ms + visibility_ms)
            if dead_lettered and dead_letters is not None:
                self._changed(dead_letters)
            return commands.Received(deliveries)

        return apply

    def _acknowledge(self, request: commands.Acknowledge) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_batch(len(request.receipts))

        def apply() -> Answer:
            depth = len(queue.messages)
            is_elsewhere = self.transfers.has_left(queue.name) or self.transfers.is_arriving(queue.name)
            refused = acknowledge(queue, request.receipts, self._counters.lease, is_elsewhere=is_elsewhere)
            if len(queue.messages) < depth:
                self._changed(queue, NEVER)
            return commands.Acknowledged(refused)

        return apply

    def _change_visibility(self, request: commands.ChangeVisibility) -> Plan:
        queue = self._directory[request.queue]
        if not self.is_replay:
            check_batch(len(request.changes))
            reasons = sum(len(each.reason) for each in request.changes)
            self.check_memory(reasons, reserve=self.limits.memory_max // REASONS_SHARE)

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

    def _move_some(self, request: commands.MoveSome) -> Plan:
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
        """Call after every change of a queue's messages. Nothing new is due before `next_ms`."""
        self.changed = True
        queue.tidy()
        if queue.wake_ms is None or next_ms < queue.wake_ms:
            self._timers.schedule(queue)

    def _next_of_sent(self, queue: QueueState) -> int:
        """Before this, nothing is due for messages sent just now, unless some are delayed."""
        return 0 if queue.delayed else self.now_ms + queue.config.retention_ms

    def _check_room(self, queue: QueueState, entries: int, bytes_sent: int) -> None:
        self.check_memory(entries * MESSAGE + bytes_sent)
        self.usages.check_bytes(namespace_of(queue.name), bytes_sent)
        queue.deduplication.check_room(queue.name, entries, self.limits.deduplication_names_max, self.now_ms)

    _PLANNERS: ClassVar[dict[type, Callable[[Any, Any], Plan]]] = handlers_of(QUEUES, vars(), COMMANDS)
    _ANSWERS: ClassVar[dict[type, Callable[[Any, Any], Any]]] = handlers_of(QUEUES, vars(), QUERIES)
