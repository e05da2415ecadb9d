"""What the machine must do, in the plainest way: lists, linear scans, and time that goes from one event to the next.

Nothing is fast and nothing is kept twice. A message's state follows from its times and its lease; what comes first is
found by looking at all. It answers like the machine, except that reasons are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from tests.unit.broker.queues.model_values import ModelMessage, ModelQueue, ModelTurn

from lavant.broker.protocol import queue_config as limits
from lavant.broker.protocol import queues as c
from lavant.broker.protocol.commands import Answer, Request
from lavant.broker.protocol.queue_config import DEDUPLICATION_MS, DELAY_MS_MAX, VISIBILITY_MS_MAX, QueueConfig
from lavant.core.errors import (
    InvalidValue,
    LavantError,
    LimitExceeded,
    MoveRunning,
    QueueExists,
    TooManyInFlight,
    UnknownMove,
    UnknownQueue,
)

DEAD_LETTERS_MAX = 1000


def refused(error: type[LavantError]) -> c.Refused:
    return c.Refused(error.__name__, "")


class Model:
    """Answers what `Queues` must answer."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.queues: dict[str, ModelQueue] = {}
        self.moves: list[c.MoveState] = []
        self.number = self.lease = self.task = self.place = self.rules = 0

    def handle(self, request: Request, now_ms: int) -> Answer:
        self.advance(now_ms)
        handler: Callable[[Any], Answer] = getattr(self, "on_" + type(request).__name__.lower())
        return handler(request)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self, now_ms: int) -> None:
        while (event_ms := self.wakeup_ms()) is not None and event_ms <= now_ms:
            self.now_ms = event_ms
            for queue in self.queues.values():
                self.expire(queue)
                due = [message for message in queue.messages if message.hidden_until_ms == event_ms]
                for message in sorted(due, key=lambda message: message.number):
                    self.show(queue, message)
        self.now_ms = max(self.now_ms, now_ms)

    def wakeup_ms(self) -> int | None:
        times = [queue.expires_ms(message) for queue in self.queues.values() for message in queue.messages]
        for queue in self.queues.values():
            times += [m.hidden_until_ms for m in queue.messages if m.hidden_until_ms is not None]
        return min(times, default=None)

    def expire(self, queue: ModelQueue) -> None:
        for message in list(queue.messages):
            if queue.expires_ms(message) <= self.now_ms:
                queue.totals["expired"] += 1
                queue.messages.remove(message)
                self.take_turn(queue, message.entry.group)

    def take_turn(self, queue: ModelQueue, name: str) -> None:
        """After every change of a group: whether it can be received from, and since when with which message."""
        group = sorted((m for m in queue.messages if m.entry.group == name), key=lambda message: message.number)
        if not group or not group[0].is_visible or any(message.is_leased for message in group):
            queue.turns.pop(name, None)
        elif name not in queue.turns or queue.turns[name].head != group[0].number:
            self.place += 1
            is_returned = self.rules >= 1 and group[0].receive_count > 0
            queue.turns[name] = ModelTurn(group[0].number, is_returned, self.number, self.place)

    def show(self, queue: ModelQueue, message: ModelMessage) -> None:
        queue.totals["returned"] += message.is_leased
        message.hidden_until_ms = None
        message.is_leased = False
        self.place += 1
        message.place = self.place
        self.take_turn(queue, message.entry.group)

    # ── queues ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def queue(self, name: str) -> ModelQueue:
        if name not in self.queues:
            raise UnknownQueue(name)
        return self.queues[name]

    def on_open(self, request: c.Open) -> Answer:
        if request.epoch <= self.lease >> 40:
            raise InvalidValue("epoch")
        self.lease = request.epoch << 40
        self.rules = request.rules
        return c.Done()

    def on_createqueue(self, request: c.CreateQueue) -> Answer:
        existing = self.queues.get(request.queue)
        if existing is not None:
            if existing.config == request.config:
                return c.QueueCreated(is_new=False)
            raise QueueExists(request.queue)
        self.check_dead_letters(request.queue, request.config)
        self.queues[request.queue] = ModelQueue(request.queue, request.config, request.tags, self.now_ms, self.now_ms)
        return c.QueueCreated(is_new=True)

    def check_dead_letters(self, name: str, config: QueueConfig) -> None:
        if config.dead_letters is not None:
            target = self.queues.get(config.dead_letters)
            if target is None or target.config.order != config.order or target.name == name:
                raise InvalidValue("dead letters")

    def on_configurequeue(self, request: c.ConfigureQueue) -> Answer:
        queue = self.queue(request.queue)
        if queue.config.order != request.config.order:
            raise InvalidValue("order")
        if queue.config.dead_letters != request.config.dead_letters:
            self.check_dead_letters(queue.name, request.config)
        queue.config = request.config
        queue.changed_ms = self.now_ms
        self.expire(queue)
        return c.Done()

    def on_tagqueue(self, request: c.TagQueue) -> Answer:
        self.queue(request.queue).tags = request.tags
        return c.Done()

    def on_deletequeue(self, request: c.DeleteQueue) -> Answer:
        self.queue(request.queue)
        del self.queues[request.queue]
        self.moves = [move for move in self.moves if move.source != request.queue]
        return c.Done()

    def on_purgequeue(self, request: c.PurgeQueue) -> Answer:
        queue = self.queue(request.queue)
        queue.messages = []
        queue.turns = {}
        if self.rules >= 1:
            queue.names = []
        return c.Done()

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_send(self, request: c.Send) -> Answer:
        queue = self.queue(request.queue)
        return c.Sent([self.send(queue, entry) for entry in request.entries])

    def send(self, queue: ModelQueue, entry: c.SendEntry) -> c.SentEntry | c.Refused:
        config, name = queue.config, entry.deduplication
        if len(entry.body) + len(entry.attributes) > config.message_bytes_max:
            return refused(LimitExceeded)
        if queue.is_in_order:
            if entry.delay_ms not in (None, config.delay_ms):
                return refused(InvalidValue)
            if not name and config.deduplicate_by_content:
                name = sha256(entry.body).hexdigest()
            key = (entry.group, name) if config.deduplicate_within_group else name
            for sent_ms, other, number in queue.names:
                if name and other == key and self.now_ms < sent_ms + DEDUPLICATION_MS:
                    queue.totals["deduplicated"] += 1
                    return c.SentEntry(number)
        elif entry.group or name or (entry.delay_ms is not None and entry.delay_ms < 0):
            return refused(InvalidValue)
        elif entry.delay_ms is not None and entry.delay_ms > DELAY_MS_MAX:
            return refused(LimitExceeded)
        if len(queue.messages) >= config.depth_max:
            return c.Refused("QueueFull", "")
        self.number += 1
        if queue.is_in_order and name:
            queue.names.append((self.now_ms, key, self.number))
        delay_ms = config.delay_ms if entry.delay_ms is None else entry.delay_ms
        until_ms = self.now_ms + delay_ms if delay_ms else None
        message = ModelMessage(self.number, entry, name, self.now_ms, self.now_ms, until_ms)
        if message.is_visible:
            self.place += 1
            message.place = self.place
        queue.messages.append(message)
        self.take_turn(queue, entry.group)
        queue.totals["sent"] += 1
        return c.SentEntry(self.number)

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def line(self, queue: ModelQueue, count: int) -> list[ModelMessage]:
        """Those that are received next."""
        if not queue.is_in_order:
            visible = [message for message in queue.messages if message.is_visible]
            return sorted(visible, key=lambda message: message.place)[:count]
        fresh = sorted((t.head, name) for name, t in queue.turns.items() if not t.is_returned)
        returned = sorted((t.place, t.after, name) for name, t in queue.turns.items() if t.is_returned)
        names: list[str] = []
        while fresh or returned:
            is_fresh = fresh and (not returned or fresh[0][0] <= returned[0][1])
            names.append(fresh.pop(0)[-1] if is_fresh else returned.pop(0)[-1])
        chosen: list[ModelMessage] = []
        for name in names:
            group = [message for message in queue.messages if message.entry.group == name]
            for message in sorted(group, key=lambda message: message.number):
                if not message.is_visible:
                    break
                chosen.append(message)
        return chosen[:count]

    def on_receive(self, request: c.Receive) -> Answer:
        queue = self.queue(request.queue)
        room = max(0, queue.config.in_flight_max - queue.in_flight())
        if room == 0 and self.line(queue, 1):
            raise TooManyInFlight(queue.name)
        visibility_ms = queue.config.visibility_ms if request.visibility_ms is None else request.visibility_ms
        leased: list[ModelMessage] = []
        dead_lettered = 0
        while len(leased) < min(request.count, room) and dead_lettered < DEAD_LETTERS_MAX:
            line = self.line(queue, min(request.count, room) - len(leased))
            dead = self.bury(queue, line)
            dead_lettered += dead
            for message in line:
                if message in queue.messages:
                    self.lease += 1
                    message.lease = self.lease
                    message.is_leased = True
                    message.hidden_until_ms = self.now_ms + visibility_ms
                    message.receive_count += 1
                    if message.receive_count == 1:
                        message.first_received_ms = self.now_ms
                    self.take_turn(queue, message.entry.group)
                    leased.append(message)
            if not dead:
                break
        queue.totals["received"] += len(leased)
        deliveries = [message.delivery() for message in leased]
        if visibility_ms == 0:
            for message in leased:
                self.show(queue, message)
        return c.Received(deliveries)

    def bury(self, queue: ModelQueue, line: list[ModelMessage]) -> int:
        """Move dead letters: how many."""
        target = self.queues.get(queue.config.dead_letters) if queue.config.dead_letters is not None else None
        if target is None or target.config.order != queue.config.order:
            return 0
        assert queue.config.receives_max is not None
        dead = [message for message in line if message.receive_count >= queue.config.receives_max]
        dead = dead[: max(0, target.config.depth_max - len(target.messages))]
        for message in dead:
            self.transfer(message, queue, target, origin=queue.name)
        queue.totals["dead_lettered"] += len(dead)
        return len(dead)

    def transfer(self, message: ModelMessage, source: ModelQueue, target: ModelQueue, *, origin: str | None) -> None:
        self.place += 1
        source.messages.remove(message)
        target.messages.append(
            ModelMessage(
                message.number,
                message.entry,
                message.name,
                message.sent_ms,
                self.now_ms,
                None,
                lease=message.lease,
                origin=origin,
                reason="" if origin is None else message.reason,
                attempts=0 if origin is None else message.receive_count,
                place=self.place,
            )
        )
        self.take_turn(source, message.entry.group)
        self.take_turn(target, message.entry.group)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_acknowledge(self, request: c.Acknowledge) -> Answer:
        queue = self.queue(request.queue)
        faults: dict[int, c.Refused] = {}
        done: list[ModelMessage] = []
        for place, receipt in enumerate(request.receipts):
            message = queue.find(receipt.number)
            if message is None or message in done:
                continue
            is_superseded = receipt.lease < message.lease
            if is_superseded and (queue.is_in_order or message.is_leased):
                faults[place] = c.Refused("StaleReceipt", "")
            elif receipt.lease > self.lease:
                faults[place] = refused(InvalidValue)
            else:
                done.append(message)
        waiting = [message for message in done if not message.is_leased]
        for message in waiting:
            queue.messages.remove(message)
        for message in waiting:
            self.take_turn(queue, message.entry.group)
        for message in done:
            if message.is_leased:
                queue.messages.remove(message)
                self.take_turn(queue, message.entry.group)
        queue.totals["acknowledged"] += len(done)
        return c.Acknowledged(faults)

    def on_release(self, request: c.Release) -> Answer:
        queue = self.queue(request.queue)
        faults: dict[int, c.Refused] = {}
        chosen: list[ModelMessage] = []
        for place, receipt in enumerate(request.receipts):
            message = queue.find(receipt.number)
            if receipt.lease > self.lease:
                faults[place] = refused(InvalidValue)
            elif message is None or not message.is_leased:
                faults[place] = c.Refused("NotInFlight", "")
            elif message.lease != receipt.lease:
                faults[place] = c.Refused("StaleReceipt", "")
            elif message not in chosen:
                chosen.append(message)
        for message in reversed(chosen):
            message.receive_count -= 1
            if message.receive_count == 0:
                message.first_received_ms = 0
            self.show(queue, message)
            message.place = min(each.place for each in queue.messages) - 1
        return c.VisibilityChanged(faults)

    def on_changevisibility(self, request: c.ChangeVisibility) -> Answer:
        queue = self.queue(request.queue)
        faults: dict[int, c.Refused] = {}
        for place, change in enumerate(request.changes):
            message = queue.find(change.receipt.number)
            if change.visibility_ms < 0:
                faults[place] = refused(InvalidValue)
            elif change.visibility_ms > VISIBILITY_MS_MAX or len(change.reason) > limits.REASON_CHARACTERS_MAX:
                faults[place] = c.Refused("LimitExceeded", "")
            elif change.receipt.lease > self.lease:
                faults[place] = refused(InvalidValue)
            elif message is None or not message.is_leased:
                faults[place] = c.Refused("NotInFlight", "")
            elif message.lease != change.receipt.lease:
                faults[place] = c.Refused("StaleReceipt", "")
            else:
                message.reason = change.reason if change.reason else message.reason
                message.hidden_until_ms = self.now_ms + change.visibility_ms
                if change.visibility_ms == 0:
                    self.show(queue, message)
        return c.VisibilityChanged(faults)

    # ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_startmove(self, request: c.StartMove) -> Answer:
        source = self.queue(request.source)
        if request.destination is not None:
            destination = self.queue(request.destination)
            if destination is source or destination.config.order != source.config.order:
                raise InvalidValue("destination")
        if any(move.source == source.name and move.status == "running" for move in self.moves):
            raise MoveRunning(source.name)
        self.task += 1
        total = sum(message.is_visible for message in source.messages)
        kept = [move for move in self.moves if move.source == source.name][-9:]
        self.moves = [move for move in self.moves if move.source != source.name or move in kept]
        self.moves.append(
            c.MoveState(
                self.task,
                source.name,
                request.destination,
                request.rate_per_s,
                self.now_ms,
                total=total,
                moved=0,
                status="running",
                reason="",
            )
        )
        return c.MoveStarted(self.task)

    def move(self, task: int) -> int:
        """Where it stands in the list."""
        for place, move in enumerate(self.moves):
            if move.task == task:
                return place
        raise UnknownMove(str(task))

    def on_movesome(self, request: c.MoveSome) -> Answer:
        place = self.move(request.task)
        move = self.moves[place]
        moved, status = move.moved, move.status
        for _ in range(request.count):
            if status != "running":
                break
            source = self.queues[move.source]
            line = self.line(source, 1)
            if moved == move.total or not line:
                status = "completed"
                break
            name = line[0].origin if move.destination is None else move.destination
            target = None if name is None else self.queues.get(name)
            if (
                target is None
                or target.config.order != source.config.order
                or len(target.messages) >= target.config.depth_max
            ):
                status = "failed"
                break
            self.transfer(line[0], source, target, origin=None)
            moved += 1
        if status == "running" and moved == move.total:
            status = "completed"
        self.moves[place] = self.state_of(move, moved, status)
        return c.Moved(self.moves[place])

    def state_of(self, move: c.MoveState, moved: int, status: str) -> c.MoveState:
        return c.MoveState(
            move.task,
            move.source,
            move.destination,
            move.rate_per_s,
            move.started_ms,
            total=move.total,
            moved=moved,
            status=status,
            reason="",
        )

    def on_cancelmove(self, request: c.CancelMove) -> Answer:
        place = self.move(request.task)
        if self.moves[place].status == "running":
            self.moves[place] = self.state_of(self.moves[place], self.moves[place].moved, "cancelled")
        return c.Moved(self.moves[place])

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_describequeue(self, request: c.DescribeQueue) -> Answer:
        queue = self.queue(request.queue)
        states = [message.state for message in queue.messages]
        figures = c.QueueFigures(
            visible=states.count("visible"),
            in_flight=states.count("in flight"),
            delayed=states.count("delayed"),
            bytes=sum(message.size for message in queue.messages),
            oldest_sent_ms=min((message.entered_ms for message in queue.messages), default=None),
            **queue.totals,
        )
        return c.Described(queue.config, queue.tags, queue.created_ms, queue.changed_ms, figures)

    def on_listqueues(self, request: c.ListQueues) -> Answer:
        names = [name for name in sorted(self.queues) if name.startswith(request.prefix) and name > request.after]
        return c.Listed(names[: request.count])

    def on_listsources(self, request: c.ListSources) -> Answer:
        target = self.queue(request.queue).name
        return c.Listed([name for name in sorted(self.queues) if self.queues[name].config.dead_letters == target])

    def on_peek(self, request: c.Peek) -> Answer:
        messages = sorted(self.queue(request.queue).messages, key=lambda message: message.number)
        return c.Peeked(
            [
                c.PeekedMessage(
                    message.number,
                    message.state,
                    0 if message.hidden_until_ms is None else message.hidden_until_ms,
                    message.entry.body,
                    message.entry.attributes,
                    message.sent_ms,
                    message.receive_count,
                    message.entry.group,
                    message.origin,
                    message.reason,
                    message.attempts,
                )
                for message in messages
                if message.number > request.after
            ][: request.count]
        )

    def on_listmoves(self, request: c.ListMoves) -> Answer:
        source = self.queue(request.source).name
        return c.Moves([move for move in reversed(self.moves) if move.source == source])

    def visible(self, name: str) -> bool:
        queue = self.queue(name)
        return queue.in_flight() < queue.config.in_flight_max and bool(self.line(queue, 1))
