"""A broker of a federation without a disk and a network: `BrokerMachine`, `FederationMachine` and a matcher, combined
as in the service."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from lavant.broker.federation.columns import RelayedFrom, routed_columns
from lavant.broker.federation.effects import (
    AwaitMatchers,
    CloseLink,
    FrameReceived,
    LinkEffect,
    LinkNotice,
    RelayPublications,
    SendFrame,
)
from lavant.broker.federation.frames import LinkFrame
from lavant.broker.federation.machine import FederationMachine
from lavant.broker.federation.session import FederationConfig
from lavant.broker.filters import CANONICAL_LIMITS, Filter
from lavant.broker.machine.effects import Effect, Mistake, Record, Reply
from lavant.broker.machine.long_polls import RequestContext
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.matching.interface import Matches
from lavant.broker.protocol.commands import Request
from lavant.broker.protocol.queues import FanOut
from lavant.broker.protocol.subscriptions import Deliver, EncryptedFilter, Publish, Published
from lavant.broker.queues.timers import earliest
from lavant.broker.queues.validation import refusal
from lavant.broker.subscriptions.admission import Admission, AdmittedPublish
from lavant.broker.subscriptions.registry import Added
from lavant.broker.subscriptions.routing import FanOutBatch, QueueRoutes
from lavant.core.errors import LavantError

NodeEffect: TypeAlias = Record | Reply | SendFrame | CloseLink | LinkNotice | FrameReceived


class NodeMatcher:
    """Tries every filter: slow, and certain. It knows no keys, so encrypted filters match nothing."""

    def __init__(self) -> None:
        self._filters: dict[str, dict[int, Filter]] = {}
        self._routes: dict[str, QueueRoutes] = {}

    def change(self, changes: Sequence[Any]) -> None:
        for change in changes:
            state = change.subscription
            if isinstance(state.filter, EncryptedFilter):
                continue
            filters = self._filters.setdefault(state.namespace, {})
            routes = self._routes.setdefault(state.namespace, QueueRoutes())
            if isinstance(change, Added):
                filters[state.number] = Filter.parse(state.filter, CANONICAL_LIMITS)
                routes.add(state.number, change.serial)
            else:
                del filters[state.number]
                routes.remove(state.number)

    def match(self, namespace: str, contents: Sequence[Any]) -> FanOutBatch:
        if not self._filters.get(namespace):
            return FanOutBatch.nothing(len(contents))
        found = [[n for n, each in self._filters[namespace].items() if each.matches(content)] for content in contents]
        offsets = np.cumsum([0, *map(len, found)])
        ids = np.array([number for each in found for number in each], np.uint32)
        [batch] = self._routes[namespace].fan_out(Matches(offsets, ids), 1 << 30)
        return batch


class _Relaying(msgspec.Struct, frozen=True):
    """The client of publications that are relayed."""

    connection: Hashable


MakeMachine: TypeAlias = Callable[[BrokerMachine, FederationConfig], FederationMachine]


class BrokerNode(BrokerMachine):
    """Methods return effects for the world: records for the journal, replies to clients, frames for connections."""

    def __init__(
        self,
        broker: BrokerState,
        config: FederationConfig,
        *,
        position: int = 0,
        make_machine: MakeMachine = FederationMachine,
    ) -> None:
        super().__init__(broker, position=position)
        self.machine = make_machine(self, config)
        self._admission = Admission(self.queues, broker.subscriptions, publications_max=1 << 30, bytes_max=1 << 40)
        self._admission.broker = config.name
        self._admission.requires_advertisements = config.requires_advertisements
        self._matcher = NodeMatcher()
        self.probe: Callable[[Any, FanOutBatch], None] = lambda content, part: None
        """Sees each publication that is matched, and where it goes."""
        self.matching_ms = 0
        """To match a batch that a neighbour sends; further ones wait."""
        self._backlog: deque[RelayPublications | AwaitMatchers] = deque()
        self._matched_ms = 0

    def open(self, now_ms: int) -> list[Any]:
        subscriptions = self.broker.subscriptions
        subscriptions.changes.clear()
        self._matcher.change([Added(each, self.queues.serial(each.queue)) for each in subscriptions])
        self._matcher.change([Added(each, link) for each, link in self.broker.federation.entries()])
        opened = super().open(now_ms)
        return self._run([*opened, *self.machine.open(now_ms)], now_ms)

    def request(self, client: Hashable, number: int, request: Request, raw: bytes | None, now_ms: int) -> list[Any]:
        if not isinstance(request, Publish):
            return self._run(super().request(client, number, request, None, now_ms), now_ms)
        context = RequestContext(client, number, None)
        try:
            self._admission.check(request)
            admitted = self._admission.admit(context, request, b"", now_ms, is_delivered_later=False)
        except LavantError as error:
            return self._run([Reply(client, number, refusal(error))], now_ms)
        return self._run(self._deliver_each(admitted, now_ms), now_ms)

    def committed(self, position: int, now_ms: int) -> list[Any]:
        effects = super().committed(position, now_ms)
        return [*self._run(effects, now_ms), *self._run(self.machine.committed(now_ms), now_ms)]

    def tick(self, now_ms: int) -> list[Any]:
        effects = super().tick(now_ms)
        return [
            *self._run(effects, now_ms),
            *self._run(self.machine.tick(now_ms), now_ms),
            *self._work_off(now_ms),
        ]

    def wakeup_ms(self) -> int | None:
        backlog_ms = self._matched_ms + self.matching_ms if self._backlog else None
        return earliest(super().wakeup_ms(), self.machine.wakeup_ms(), backlog_ms)

    def dialled(self, connection: Hashable, now_ms: int) -> list[Any]:
        return self._run(self.machine.dialled(connection, now_ms), now_ms)

    def accepted(self, connection: Hashable, now_ms: int) -> list[Any]:
        return self._run(self.machine.accepted(connection, now_ms), now_ms)

    def frame(self, connection: Hashable, frame: LinkFrame, now_ms: int) -> list[Any]:
        return self._run(self.machine.frame(connection, frame, now_ms), now_ms)

    def move(self, namespace: str, name: str, broker: str, now_ms: int) -> list[Any]:
        """Raises if the subscription cannot be moved."""
        return self._run(self.machine.move(namespace, name, broker, now_ms), now_ms)

    def closed(self, connection: Hashable, now_ms: int) -> list[Any]:
        return self._run(self.machine.closed(connection, now_ms), now_ms)

    def _run(self, effects: Sequence[LinkEffect | Effect], now_ms: int) -> list[NodeEffect]:
        """Perform what concerns the node itself, until only the world's effects are left."""
        out: list[NodeEffect] = []
        tokens: list[int] = []
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            if self.matching_ms and isinstance(effect, RelayPublications | AwaitMatchers):
                if not self._backlog:
                    self._matched_ms = now_ms
                self._backlog.append(effect)
            elif isinstance(effect, RelayPublications):
                waiting[:0] = self._relay(effect, now_ms)
            elif isinstance(effect, Reply) and effect.client is self.machine.client:
                self.machine.client.reply(effect)
            elif isinstance(effect, Reply) and isinstance(effect.client, _Relaying):
                assert isinstance(effect.answer, Published)
                connection = effect.client.connection
                waiting += self.machine.relayed(connection, effect.number, effect.answer.entries, now_ms)
            elif isinstance(effect, AwaitMatchers):
                tokens.append(effect.token)
            elif isinstance(effect, Mistake):
                raise effect.error
            else:
                out.append(effect)
        changes = self.broker.subscriptions.changes
        if changes:
            self._matcher.change(changes)
            changes.clear()
        for token in tokens:
            out += self._run(self.machine.matched(token, now_ms), now_ms)
        return out

    def _work_off(self, now_ms: int) -> list[NodeEffect]:
        """Match what has waited long enough, as a slow broker does."""
        out: list[NodeEffect] = []
        while self._backlog and now_ms >= self._matched_ms + self.matching_ms:
            effect = self._backlog.popleft()
            if isinstance(effect, AwaitMatchers):
                out += self._run(self.machine.matched(effect.token, now_ms), now_ms)
            else:
                self._matched_ms += self.matching_ms
                out += self._run(self._relay(effect, now_ms), now_ms)
        return out

    def _relay(self, effect: RelayPublications, now_ms: int) -> list[Effect]:
        context = RequestContext(_Relaying(effect.connection), effect.number, None)
        admitted = self._admission.relay(context, effect.batch, effect.indexes, effect.link)
        return self._deliver_each(admitted, now_ms)

    def _deliver_each(self, admitted: AdmittedPublish, now_ms: int) -> list[Effect]:
        """Match and record publications one by one, so that each is accepted or refused alone."""
        effects: list[Effect] = []
        for place, parsed in admitted.accepted.items():
            part = self._matcher.match(admitted.namespace, [parsed.content])
            self.probe(parsed.content, part)
            way: RelayedFrom | None = admitted.relayed.get(place)
            routed = routed_columns(admitted.namespace, [way]) if self.broker.federation.neighbours else None
            if way is not None:
                part, _ = part.fitting(len(parsed.body), self.queues)
            fan_out = FanOut([parsed.body], part.queues, part.ends, part.places)
            try:
                effects += self.deliver(Deliver(fan_out, routed=routed), [], now_ms)
            except LavantError as error:
                admitted.entries[place] = refusal(error)
        self._admission.matched([admitted])
        nothing = Deliver(FanOut([], b"", b"", b""))
        effects += self.deliver(nothing, [(admitted.context, Published(admitted.entries))], now_ms)
        return effects
