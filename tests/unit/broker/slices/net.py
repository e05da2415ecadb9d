"""Hosts, manager, source and sink with messages between them that are delivered in any order, lost or repeated, as a
seed says. At any time a machine may be replaced by one made from its snapshot."""

from __future__ import annotations

from random import Random
from typing import Any

from lavant.broker.slices import SINK, SliceLayout, SliceNotification
from lavant.broker.slices.endpoints import NotifiedOnce, Offer, Sink, SliceSource
from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.manager import ManagerConfig, MigrationManager, Relocate, Relocated
from lavant.broker.slices.migration.messages import DataReceived, LinkTimerDue, Transmit
from lavant.broker.slices.migration.migration import MigrationConfig
from lavant.core.ids import HostId, SliceId

MANAGER, EDGE, DRAIN = HostId("manager"), HostId("edge"), HostId("drain")
SOURCE = SliceId("source:0")
CONFIG = ManagerConfig(migration=MigrationConfig(deadline_ms=4_000, copy_retry_ms=500))


class Net:
    def __init__(
        self, layout: SliceLayout, seed: int, *, hosts: int = 2, loss: float = 0.0, clones: float = 0.0
    ) -> None:
        self.layout = layout
        self.names = [HostId(f"host-{number}") for number in range(hosts)]
        self.placed = {slice: self.names[number % hosts] for number, slice in enumerate(layout.slices)}
        self.everywhere = {**self.placed, SINK: DRAIN}
        self.machines: dict[HostId, Any] = {name: self._new(name) for name in [*self.names, MANAGER, EDGE, DRAIN]}
        self.notifications: list[SliceNotification] = []
        self.relocated: list[Relocated] = []
        self.now_ms = 0
        self._random = Random(seed)
        self._loss = loss
        self._clones = clones
        self._packets: list[tuple[HostId, HostId, Any]] = []

    def _new(self, name: HostId) -> Any:
        if name == MANAGER:
            return MigrationManager(self.placed, [EDGE], CONFIG)
        if name == EDGE:
            return SliceSource(SOURCE, MANAGER, self.everywhere)
        return Sink() if name == DRAIN else SliceHost(name, self.layout, MANAGER, self.everywhere)

    def tell(self, name: HostId, stimulus: Any) -> None:
        machine = self.machines[name]
        clone = None
        is_saved = name == MANAGER or (
            name in self.names and not isinstance(stimulus, LinkTimerDue)
        )  # without hosts' timers
        if is_saved and self._random.random() < self._clones:
            clone = self._new(name)
            clone.restore(machine.snapshot())
        effects = machine.handle(stimulus, self.now_ms)
        if clone is not None:
            again = clone.handle(stimulus, self.now_ms)
            assert is_same(effects, again), f"{name} from its snapshot answers {stimulus} otherwise"
            assert clone.snapshot() == machine.snapshot()
            self.machines[name] = clone
        for effect in effects:
            if isinstance(effect, Transmit):
                self._packets.append((name, effect.to, effect.message))
            elif isinstance(effect, NotifiedOnce):
                self.notifications.append(effect.notification)
            elif isinstance(effect, Relocated):
                self.relocated.append(effect)

    def offer(self, content: Any) -> None:
        self.tell(EDGE, Offer(self.layout.access_slices[0], content))

    def move(self, slice: SliceId, to: HostId) -> None:
        self.tell(MANAGER, Relocate(slice, to))

    def step(self) -> None:
        """A packet arrives, or is lost, or comes again; or time goes on."""
        random = self._random
        if self._packets and random.random() < 0.98:
            source, to, message = self._packets.pop(random.randrange(min(8, len(self._packets))))
            if random.random() < self._loss:
                if random.random() < 0.5:
                    return
                self._packets.append((source, to, message))
            self.tell(to, DataReceived(source, message))
            return
        self.now_ms += 20
        for name, machine in list(self.machines.items()):
            wakeup_ms = machine.wakeup_ms()
            if wakeup_ms is not None and wakeup_ms <= self.now_ms:
                self.tell(name, LinkTimerDue())

    def settle(self) -> None:
        """Let everything come to its end, without losses."""
        self._loss = 0.0
        for _ in range(20_000):
            if not self._packets and all(machine.wakeup_ms() is None for machine in self.machines.values()):
                return
            self.step()
        raise AssertionError("it does not come to an end")


def is_same(effects: list[Any], others: list[Any]) -> bool:
    """Acknowledgements and who was told are not saved, so a machine from a snapshot may acknowledge once more."""

    def sent(found: list[Any]) -> list[str]:
        return [repr(e) for e in found if not (isinstance(e, Transmit) and type(e.message).__name__ == "Ack")]

    return sent(effects) == sent(others)
