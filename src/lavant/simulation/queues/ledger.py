"""A ledger of what the server's journal was given and has confirmed, beyond the reach of crashes; and a shadow of the
queues.

    position    1 … shadow … durable … staged
                └ handled by the shadow, and forgotten

After a crash the recovered queues must be those of some prefix that includes everything confirmed.
"""

from __future__ import annotations

from collections import deque
from typing import NoReturn

from lavant.broker.machine.replay import apply_again
from lavant.broker.machine.start_time import CORRECTION_MS_MAX, DOWN_MS_MAX
from lavant.broker.machine.state import BrokerState
from lavant.broker.queues.accounting.quotas import UNLIMITED
from lavant.broker.workflows.limits import UNLIMITED_JOBS
from lavant.broker.workflows.machine import Jobs
from lavant.core.errors import LavantError
from lavant.simulation.kernel import World
from lavant.simulation.kernel.distributions import MS
from lavant.simulation.kernel.faults.kinds import DRIFTS_PPM

TIME = "the server's time does not run ahead of the world's"
RECOVERED = "the recovered queues are those of the committed prefix"


class JournalLedger:
    """One per server, over all its starts."""

    def __init__(self, world: World) -> None:
        self.durable = 0
        self._world = world
        self._records: deque[bytes] = deque()
        """Records after the shadow."""
        self._shadow = BrokerState(Jobs(UNLIMITED, UNLIMITED_JOBS))
        self._shadow_position = 0
        self._first: tuple[int, int] | None = None
        """The server's time and the world's when the server was first started."""
        self._boots = 1
        self.excess_ms = 0
        """How far the server's time may have run ahead of the world's so far: each start adopts clock corrections, and
        a boot adopts the clock after a short time.
        """

    def count(self, figure: str) -> None:
        """Count an event of the journal."""
        self._world.count(f"journal {figure}")

    def staged(self, record: bytes) -> None:
        self._records.append(record)

    def committed(self, position: int) -> None:
        self.durable = position

    def unreadable(self, error: LavantError) -> NoReturn:
        """A start of the server could not replay its records."""
        self._world.violated(RECOVERED, f"they cannot be recovered: {error}")

    def started(self, time_ms: int, boots: int) -> None:
        """A start of the server continues at this time. Leases and messages end no earlier than they should."""
        world_ms = self._world.now_us // MS
        if self._first is None:
            self._first = time_ms, world_ms
        self.excess_ms += CORRECTION_MS_MAX + DOWN_MS_MAX * (boots - self._boots)
        self._boots = boots
        counted_ms, passed_ms = time_ms - self._first[0], world_ms - self._first[1]
        if counted_ms > passed_ms * (1_000_000 + max(DRIFTS_PPM)) // 1_000_000 + self.excess_ms:
            self._world.violated(TIME, f"it has counted {counted_ms} ms, and {passed_ms} have passed")

    def recovered(self, broker: BrokerState, position: int) -> None:
        """A start of the server has recovered so many records; those staged after them never happened."""
        staged = self._shadow_position + len(self._records)
        if not self.durable <= position <= staged:
            self._world.violated(
                RECOVERED, f"{position} records are there, {self.durable} were confirmed, {staged} were given"
            )
        try:
            while self._shadow_position < position:
                apply_again(self._shadow, self._records.popleft())
                self._shadow_position += 1
        except LavantError as error:
            self.unreadable(error)
        self._records.clear()
        self.durable = position
        if list(broker.snapshot()) != list(self._shadow.snapshot()):
            self._world.violated(RECOVERED, f"after {position} records the recovered queues differ from those before")
