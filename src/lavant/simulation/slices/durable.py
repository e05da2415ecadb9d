"""Machines whose state outlives crashes: what they are told is in a journal before what follows from it goes out.

    stimulus ──► machine ──► effects, held back ──────────────────────┐
        └──────► journal: staged ──► Commit ──► Written: durable ──► go out

The journal is the real one, with group commit: while a write is on its way, the machine goes on. When there is enough
to fold, the machine's own snapshot takes the place of the records.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from lavant.broker.storage.journal import Journal, JournalConfig, Write, apply_upkeep, compact
from lavant.simulation.kernel import Commit, Effect, SimulatedDisk

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
    """The journal of a machine, which is made as the journal says it was."""

    def __init__(self, machine: Recoverable[T], disk: SimulatedDisk, type: Any) -> None:
        """`machine` is new, and `type` that of the stimuli which are recorded."""
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
        """A record without a stimulus is a start. What a machine does then can decide something, so it is recorded."""
        if stimulus is None:
            self._machine.restart()
        else:
            self._machine.handle(stimulus, now_ms)

    def record(self, stimulus: T | None, now_ms: int) -> None:
        """Write down what the machine was told just now."""
        self._journal.stage(self._encoder.encode((now_ms, stimulus)))

    def hold(self, effects: list[Effect]) -> list[Effect]:
        """Keep effects until all that was recorded is durable; returns what is to be done now."""
        self._held.append((self._journal.position, effects))
        return self._go_on()

    def written(self) -> list[Effect]:
        """The write that was on its way is durable: what waited for it is to be done."""
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
