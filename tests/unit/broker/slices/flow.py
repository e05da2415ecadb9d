"""Slices joined by links in memory, whose order a test chooses: nothing is lost, anything may come late or twice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from lavant.broker.slices import (
    SINK,
    Emit,
    SliceDelivery,
    SliceLayout,
    SliceMachine,
    SliceNotification,
    SliceRefusal,
    make_slices,
)
from lavant.broker.slices.values import Content, Effect
from lavant.core.ids import SliceId

SOURCE = SliceId("source")
Packet = tuple[SliceId, SliceId, int, Content]


class Flow:
    """All slices of a layout, with what is on its way between them."""

    def __init__(self, layout: SliceLayout, seed: int = 0) -> None:
        self.layout = layout
        self.slices: dict[SliceId, SliceMachine] = make_slices(layout)
        self.notifications: list[SliceNotification] = []
        self.refused: list[SliceRefusal] = []
        self.running_job: list[Packet] = []
        self.history: list[Packet] = []
        self._random = Random(seed)
        self._sent: dict[SliceId, int] = {}
        self._sink: dict[tuple[SliceId, int], SliceNotification] = {}

    def send(self, content: Content, to: SliceId | None = None) -> None:
        """Something from the source."""
        to = self.layout.access_slices[0] if to is None else to
        self._sent[to] = self._sent.get(to, 0) + 1
        self._put((SOURCE, to, self._sent[to], content))

    def step(self, *, repeats: float = 0.0) -> None:
        """Deliver something that is under way, in whatever order, and sometimes keep it for a second time."""
        packet = self.running_job.pop(self._random.randrange(len(self.running_job)))
        if self._random.random() < repeats:
            self.running_job.append(self._random.choice(self.history))
        upstream, to, sequence, content = packet
        if to == SINK:
            assert isinstance(content, SliceNotification)
            if (upstream, sequence) not in self._sink:
                self._sink[upstream, sequence] = content
                self.notifications.append(content)
        else:
            self.perform(to, self.slices[to].handle(SliceDelivery(upstream, sequence, content), 0))

    def run(self, *, repeats: float = 0.0, at_each: Callable[[], None] | None = None) -> None:
        while self.running_job:
            self.step(repeats=repeats)
            if at_each is not None:
                at_each()

    def perform(self, slice: SliceId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Emit):
                self._put((slice, effect.to, effect.sequence, effect.content))
            else:
                self.refused.append(effect)

    def _put(self, packet: Packet) -> None:
        self.running_job.append(packet)
        self.history.append(packet)

    def found(self) -> dict[tuple[int, int], list[list[int]]]:
        """Who gets each publication, by batch; fails if a batch is notified twice."""
        result: dict[tuple[int, int], list[list[int]]] = {}
        for notification in self.notifications:
            id = notification.publications.id
            assert (id.access, id.number) not in result, f"{id} was notified twice"
            matches = notification.matches.sorted()
            result[id.access, id.number] = [
                matches.of(row).tolist() for row in range(len(notification.publications.batch))
            ]
        return result
