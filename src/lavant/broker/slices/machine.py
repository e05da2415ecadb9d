"""The state machine that all operators' slices share: inputs once and in order, numbered outputs, movable state.

    Delivery ──► Inbox ── each upstream's items, in order, once ──► _process ──► Emit, numbered by link
                  ▲                                                    │
                  Allow(n): how many may be processed                  Refused

The machine is deterministic: the same inputs in the same order give the same outputs with the same numbers. So a host
that keeps the order of its inputs can repeat them after a crash, and downstream slices drop the duplicates.

Machines share nothing: those of different slices may run in different threads at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from lavant.broker.slices.layout import SliceLayout, operator_of
from lavant.broker.slices.links import Inbox
from lavant.broker.slices.values import Content, Effect, Emit, SliceDelivery, SliceRefusal, Stimulus
from lavant.core.errors import UNDECODABLE, CorruptSnapshot, InvalidValue, LavantError
from lavant.core.ids import SliceId

Output = tuple[SliceId, Content]


class _Saved(msgspec.Struct, frozen=True):
    slice: SliceId
    vector: dict[SliceId, int]
    sent: dict[SliceId, int]
    state: bytes


class SliceMachine(ABC):
    """One slice. A new one is empty and processes what arrives; `Allow(0)` makes it keep inputs instead."""

    operator: ClassVar[str]

    def __init__(self, id: SliceId, layout: SliceLayout) -> None:
        if operator_of(id) != self.operator or id not in layout.slices:
            raise InvalidValue(f"{id!r} is not a {self.operator} slice of {layout}")
        self.id = id
        self.layout = layout
        self._inbox: Inbox[Content] = Inbox()
        self._sent: dict[SliceId, int] = {}
        self._allowed: int | None = None

    # ── supplied by operators
    # ─────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _process(self, content: Content) -> Iterable[Output]:
        """Process one input and return at most one output per link; hosts rely on that for their bounds. A
        `LavantError` refuses the input and must leave the state as it was.
        """

    @abstractmethod
    def _save(self) -> bytes:
        """The operator's state."""

    @abstractmethod
    def _load(self, state: bytes) -> None:
        """Restore the state that `_save` returned."""

    # ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take an input, or the permission to process some."""
        if isinstance(stimulus, SliceDelivery):
            if not self._inbox.put(stimulus.upstream, stimulus.sequence, stimulus.content):
                return []
            return self._drain([stimulus.upstream])
        self._allowed = stimulus.inputs
        return self._drain(self._inbox.upstreams())

    def wakeup_ms(self) -> int | None:
        """Never: a slice acts only on inputs."""
        return None

    @property
    def vector(self) -> Mapping[SliceId, int]:
        """The number of the last input processed from each upstream."""
        return self._inbox.vector

    @property
    def waiting(self) -> int:
        """Number of inputs that have arrived and are not processed."""
        return len(self._inbox)

    def inputs_waiting(self) -> list[SliceDelivery]:
        return [SliceDelivery(upstream, sequence, content) for upstream, sequence, content in self._inbox.items()]

    def sent(self, to: SliceId) -> int:
        """The number of the last output on the link to this slice."""
        return self._sent.get(to, 0)

    def snapshot(self) -> bytes:
        """The state with its vector, without waiting inputs: they are not acknowledged, so they come again."""
        return msgspec.msgpack.encode(_Saved(self.id, self._inbox.vector, self._sent, self._save()))

    def restore(self, snapshot: bytes) -> None:
        """Restore that state, and drop waiting inputs that it includes (step 4 of a migration)."""
        try:
            saved = msgspec.msgpack.decode(snapshot, type=_Saved)
        except UNDECODABLE as error:
            raise CorruptSnapshot(f"the snapshot of slice {self.id} cannot be read: {error}") from None
        if saved.slice != self.id:
            raise InvalidValue(f"slice {self.id} cannot have the state of {saved.slice}")
        self._load(saved.state)
        self._sent = dict(saved.sent)
        self._inbox.advance(saved.vector)

    def _drain(self, upstreams: Iterable[SliceId]) -> list[Effect]:
        effects: list[Effect] = []
        for upstream in upstreams:
            while self._allowed is None or self._allowed > 0:
                item = self._inbox.take(upstream)
                if item is None:
                    break
                if self._allowed is not None:
                    self._allowed -= 1
                effects += self._outputs(upstream, *item)
        return effects

    def _outputs(self, upstream: SliceId, sequence: int, content: Content) -> list[Effect]:
        try:
            outputs = self._process(content)
        except LavantError as error:
            return [SliceRefusal(upstream, sequence, str(error))]
        return [self._emit(to, output) for to, output in outputs]

    def _emit(self, to: SliceId, content: Content) -> Emit:
        sequence = self._sent[to] = self._sent.get(to, 0) + 1
        return Emit(to, sequence, content)
