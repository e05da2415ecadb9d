"""Hosts, manager, sources and sink of slices as kernel machines, with a journal that lets them survive crashes."""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from lavant.broker.slices.endpoints import Offer, Sink, SliceSource
from lavant.broker.slices.migration.host import SliceHost
from lavant.broker.slices.migration.manager import ManagerStimulus, MigrationManager
from lavant.broker.slices.migration.messages import AnyMessage, DataReceived, Transmit
from lavant.broker.slices.migration.messages import LinkTimerDue as SlicesDue
from lavant.broker.storage.journal import Journal, JournalConfig, Write, apply_upkeep, compact
from lavant.core.ids import HostId
from lavant.simulation.kernel import (
    Arrived,
    Commit,
    Effect,
    Note,
    SendPacket,
    SimulatedDisk,
    Stimulus,
    WorkRequested,
    Written,
)

CONFIG = JournalConfig(segment_bytes=128 << 10, block_bytes_max=64 << 10, compaction_bytes_min=0)
"""Small, so that a snapshot is taken every few seconds."""
WRITE = "journal"

StimulusT_contra = TypeVar("StimulusT_contra", contravariant=True)
T = TypeVar("T")


class Recoverable(Protocol[StimulusT_contra]):
    """A deterministic machine with a state."""

    def handle(self, stimulus: StimulusT_contra, now_ms: int, /) -> list[Any]: ...
    def snapshot(self) -> bytes: ...
    def restore(self, snapshot: bytes, /) -> None: ...
    def restart(self) -> None: ...


class Durable(Generic[T]):
    """The journal of a machine, which is restored from it."""

    def __init__(self, machine: Recoverable[T], disk: SimulatedDisk, type: Any) -> None:
        """`machine` is new, and `type` that of the recorded stimuli."""
        self._machine = machine
        self._disk = disk
        self._journal, recovered = Journal.open(disk, CONFIG)
        self._write: Write | None = None
        self._held: deque[tuple[int, list[Effect]]] = deque()
        self._encoder = msgspec.msgpack.Encoder()
        decoder = msgspec.msgpack.Decoder(tuple[int, type | None])
        if recovered.chunks is not None:
            machine.restore(b"".join(recovered.chunks))
        for record in recovered.records:
            self._tell(*decoder.decode(record))  # what followed was sent, or is sent again
        self._tell(0, None)
        self.record(None, 0)

    def _tell(self, now_ms: int, stimulus: T | None) -> None:
        """A record without a stimulus is a start. The machine may decide something then, so it is recorded."""
        if stimulus is None:
            self._machine.restart()
        else:
            self._machine.handle(stimulus, now_ms)

    def record(self, stimulus: T | None, now_ms: int) -> None:
        """Record a stimulus of the machine."""
        self._journal.stage(self._encoder.encode((now_ms, stimulus)))

    def hold(self, effects: list[Effect]) -> list[Effect]:
        """Keep effects until everything recorded is durable; returns those to perform now."""
        self._held.append((self._journal.position, effects))
        return self._go_on()

    def written(self) -> list[Effect]:
        """The outstanding write is durable: return the effects that waited for it."""
        assert self._write is not None, "one was on its way"
        self._journal.finish(self._write)
        self._write = None
        if self._journal.wants_compaction and self._journal.durable == self._journal.position:
            position = self._journal.durable
            size = compact(self._disk, position, lambda chunks, records: [self._machine.snapshot()], CONFIG)
            self._journal.adopt(position, size)
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._held and self._held[0][0] <= self._journal.durable:
            effects += self._held.popleft()[1]
        upkeep = self._journal.upkeep()
        if upkeep is not None:
            apply_upkeep(self._disk, upkeep)
            self._journal.finish_upkeep(upkeep)
        if self._write is None:
            self._write = self._journal.begin()
            if self._write is not None:
                effects.append(Commit(self._write.name, self._write.offset, self._write.data, WRITE))
        return effects


class HostMachine:
    """A `SliceHost` that survives crashes. Timers are not recorded: they change no durable state."""

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
    """A `MigrationManager` that survives crashes. Its timers decide, so they are recorded too. It notes each new
    step.
    """

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
    """A `SliceSource`, which offers what the workload requests."""

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
    """Messages are sent; everything else is noted for the scenario."""
    return [
        SendPacket(effect.to, effect.message) if isinstance(effect, Transmit) else Note(effect) for effect in effects
    ]
