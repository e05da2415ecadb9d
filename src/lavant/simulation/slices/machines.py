"""Hosts, manager, sources and sink as the kernel runs them: packets in, packets out."""

from __future__ import annotations

from typing import Any

from lavant.broker.slices.endpoints import Offer, Sink, SliceSource
from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.manager import ManagerStimulus, MigrationManager
from lavant.broker.slices.migration.messages import AnyMessage, DataReceived, Transmit
from lavant.broker.slices.migration.messages import LinkTimerDue as SlicesDue
from lavant.core.ids import HostId
from lavant.simulation.kernel import Arrived, Effect, Note, SendPacket, Stimulus, WorkRequested, Written
from lavant.simulation.kernel.disk.disk import SimulatedDisk
from lavant.simulation.slices.durable import Durable


class HostMachine:
    """A `SliceHost` that outlives crashes. Timers are not recorded: they change nothing that must last."""

    def __init__(self, host: SliceHost, disk: SimulatedDisk) -> None:
        self.host = host
        self._durable: Durable[DataReceived] = Durable(host, disk, DataReceived)

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        if isinstance(stimulus, Written):
            return self._durable.written()
        if not isinstance(stimulus, Arrived):
            return self._durable.hold(performed(self.host.handle(SlicesDue(), now_ms)))
        told = received(stimulus)
        effects = performed(self.host.handle(told, now_ms))
        self._durable.record(told, now_ms)
        return self._durable.hold(effects)

    def wakeup_ms(self) -> int | None:
        return self.host.wakeup_ms()


class ManagerMachine:
    """A `MigrationManager` that outlives crashes. Its timers decide, so they are recorded too. It notes each new
    step."""

    def __init__(self, manager: MigrationManager, disk: SimulatedDisk) -> None:
        self.manager = manager
        self._durable: Durable[ManagerStimulus] = Durable(manager, disk, ManagerStimulus)
        self._steps = self._current_steps()

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        if isinstance(stimulus, Written):
            return self._durable.written()
        told: ManagerStimulus = SlicesDue()
        if isinstance(stimulus, Arrived):
            told = received(stimulus)
        elif isinstance(stimulus, WorkRequested):
            told = stimulus.value
        effects = performed(self.manager.handle(told, now_ms))
        self._durable.record(told, now_ms)
        steps = self._current_steps()
        effects += [Note(step) for slice, step in steps.items() if self._steps.get(slice) != step]
        self._steps = steps
        return self._durable.hold(effects)

    def wakeup_ms(self) -> int | None:
        return self.manager.wakeup_ms()

    def _current_steps(self) -> dict[str, tuple[str, HostId, HostId]]:
        return {
            slice: (migration.step.value, migration.order.source, migration.order.destination)
            for slice, migration in self.manager.migrations.items()
        }


class SourceMachine:
    """A `SliceSource`; what it is asked for it offers."""

    def __init__(self, source: SliceSource) -> None:
        self.source = source

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        told: DataReceived | Offer | SlicesDue = SlicesDue()
        if isinstance(stimulus, Arrived):
            told = received(stimulus)
        elif isinstance(stimulus, WorkRequested):
            told = stimulus.value
        return performed(self.source.handle(told, now_ms))

    def wakeup_ms(self) -> int | None:
        return self.source.wakeup_ms()


class SinkMachine:
    """A `Sink` that notes notifications."""

    def __init__(self) -> None:
        self._sink = Sink()

    def handle(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        assert isinstance(stimulus, Arrived), "nothing else happens to a sink"
        return performed(self._sink.handle(received(stimulus), now_ms))

    def wakeup_ms(self) -> int | None:
        return None


def received(arrived: Arrived) -> DataReceived:
    message: AnyMessage = arrived.payload
    return DataReceived(HostId(arrived.source), message)


def performed(effects: list[Any]) -> list[Effect]:
    """Messages are sent; everything else is for the scenario's books."""
    return [
        SendPacket(effect.to, effect.message) if isinstance(effect, Transmit) else Note(effect) for effect in effects
    ]
